{{/* Nanoseconds of a duration as Go writes it, as in 1m30s or 1.5h. The schema has seen to it that it is one. */}}
{{- define "jobset.nanoseconds" -}}
{{- $units := dict "h" 3.6e12 "m" 6e10 "s" 1e9 "ms" 1e6 "us" 1e3 "ns" 1.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" .) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- printf "%.0f" $sum -}}
{{- end }}

{{/* What the controller would refuse at its start. */}}
{{- define "jobset.check-leader-election" -}}
{{- $lease := include "jobset.nanoseconds" .leaseDuration | float64 -}}
{{- $renew := include "jobset.nanoseconds" .renewDeadline | float64 -}}
{{- $retry := include "jobset.nanoseconds" .retryPeriod | float64 -}}
{{- if ne $lease (mulf (floor (divf $lease 1e9)) 1e9) -}}
{{- fail (printf "controller.leaderElection.leaseDuration %s must be whole seconds" .leaseDuration) -}}
{{- end -}}
{{- if le $lease $renew -}}
{{- fail (printf "controller.leaderElection.leaseDuration %s must be longer than renewDeadline %s" .leaseDuration .renewDeadline) -}}
{{- end -}}
{{- if le $renew (round (mulf $retry 1.2) 0) -}}
{{- fail (printf "controller.leaderElection.renewDeadline %s must be longer than retryPeriod %s times 1.2" .renewDeadline .retryPeriod) -}}
{{- end -}}
{{- end }}

{{/* What jobset-certs would refuse at its start: a CA is replaced when it could not outlive another certificate. */}}
{{- define "jobset.check-lifetimes" -}}
{{- $ca := include "jobset.nanoseconds" .caLifetime | float64 -}}
{{- $serving := include "jobset.nanoseconds" .certLifetime | float64 -}}
{{- if lt $serving 30e9 -}}
{{- fail (printf "certificates.self.certLifetime %s must be at least 30s" .certLifetime) -}}
{{- end -}}
{{- if lt $ca (mulf $serving 2) -}}
{{- fail (printf "certificates.self.certLifetime %s must be at most half of caLifetime %s" .certLifetime .caLifetime) -}}
{{- end -}}
{{- end }}

{{/* What cert-manager would refuse. */}}
{{- define "jobset.check-renewal" -}}
{{- $duration := include "jobset.nanoseconds" .duration | float64 -}}
{{- $before := include "jobset.nanoseconds" .renewBefore | float64 -}}
{{- if le $duration $before -}}
{{- fail (printf "certificates.certManager.duration %s must be longer than renewBefore %s" .duration .renewBefore) -}}
{{- end -}}
{{- end }}

{{/* A quantity as a number, as in 1Gi, 512M, 100m or 1e9. */}}
{{- define "jobset.number" -}}
{{- $units := dict "m" 0.001 "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $units = merge $units (dict "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0) -}}
{{- $text := toString . -}}
{{- $unit := regexFind "(m|[kMGTPE]|[KMGTPE]i)$" $text -}}
{{- printf "%.3f" (mulf (trimSuffix $unit $text | float64) (get $units $unit)) -}}
{{- end }}

{{/* A relay with more agents than its limit of memory holds would be killed again and again, with all its connections. The relay
     then serves fewer agents than are asked for, and here is where that is said. An agent takes 22 kB while thousands connect at once, and
     at most 54 kB if it means harm; the rest is for the program and what waits to be sent. */}}
{{- define "jobset.check-connections" -}}
{{- $limit := dig "limits" "memory" "" (.resources | default dict) -}}
{{- if $limit -}}
{{- $most := divf (subf (include "jobset.number" $limit | float64) 64e6) 54e3 | floor | maxf 0.0 -}}
{{- if gt (float64 .maxConnections) $most -}}
{{- fail (printf "stream.relay.maxConnections %.0f is more than stream.relay.resources.limits.memory %v holds, which is %.0f: an agent may take 54 kB, and a relay 64 MB beside them" (float64 .maxConnections) $limit $most) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A program must not hold the key of another: a relay with that of the controller could speak for it to all agents. */}}
{{- define "jobset.check-mounted" -}}
{{- $paths := dict -}}
{{- range $field := list "secretName" "relaySecretName" "controllerSecretName" -}}
{{- $name := get $.Values.certificates.mounted $field -}}
{{- if and $name (hasKey $paths $name) -}}
{{- fail (printf "certificates.mounted.%s must not name the same Secret as certificates.mounted.%s, which is %s: each program needs a key of its own" $field (get $paths $name) $name) -}}
{{- end -}}
{{- $paths = set $paths $name $field -}}
{{- end -}}
{{- end }}

{{/* What the webhook would refuse at its start, and the API server of every Pod. */}}
{{- define "jobset.check-agent-resources" -}}
{{- $limits := .limits | default dict -}}
{{- range $name, $request := .requests -}}
{{- if hasKey $limits $name -}}
{{- $limit := get $limits $name -}}
{{- if gt (include "jobset.number" $request | float64) (include "jobset.number" $limit | float64) -}}
{{- fail (printf "agent.resources.requests.%s %v must not be above agent.resources.limits.%s %v" $name $request $name $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
