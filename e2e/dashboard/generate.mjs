// Writes the dashboard of the chart as TypeScript, to be compiled against the types that Grafana publishes of its schema.
import { readFileSync, writeFileSync } from "node:fs";

const OPTIONS = { stat: "Stat", timeseries: "TimeSeries" };
const PANELS = "@grafana/schema/dist/types/raw/composable";

const dashboard = JSON.parse(readFileSync(process.argv[2], "utf8"));
const json = (value) => JSON.stringify(value, null, 1);
const lines = [
  'import type { Dashboard } from "@grafana/schema";',
  `import type { Options as Stat } from "${PANELS}/stat/panelcfg/x/StatPanelCfg_types.gen";`,
  `import type { Options as TimeSeries, FieldConfig } from "${PANELS}/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";`,
  // JSON has the values of enums.
  "type Plain<T> = T extends string ? `${T}` : T extends (infer E)[] ? Plain<E>[]",
  "  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;",
  `export const dashboard: Plain<Dashboard> = ${json(dashboard)};`,
];
// What is special to a kind of panel, the schema of the whole leaves open.
for (const panel of dashboard.panels.filter((panel) => panel.type !== "row")) {
  const kind = OPTIONS[panel.type];
  if (!kind) throw new Error(`panel ${panel.title}: add the schema of ${panel.type}`);
  lines.push(`export const options${panel.id}: Plain<${kind}> = ${json(panel.options)};`);
  if (panel.type === "timeseries") {
    lines.push(`export const field${panel.id}: Plain<Partial<FieldConfig>> = ${json(panel.fieldConfig.defaults.custom)};`);
  }
}
writeFileSync("check.ts", lines.join("\n"));
