//! What `deploy` installs: that it fits together, that it stays available, and that nobody else reads the keys.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use jobset_certs::Names;
use jobset_harness::admission::{apply, kustomize};
use jobset_harness::wait;
use jobset_webhook::args::{Args, CertificateSource};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::certificates::{LEAF, SECRET};
use crate::cluster::{LIMIT, NAMESPACE, Plane};

struct Manifests(Vec<Value>);

impl Manifests {
    fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.0.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == name)
    }

    fn get(&self, kind: &str, name: &str) -> &Value {
        self.find(kind, name).unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    fn pod(&self) -> &Value {
        &self.get("Deployment", "jobset-webhook")["spec"]["template"]["spec"]
    }

    /// The arguments as the program reads them.
    fn args(&self) -> Args {
        let given = self.pod()["containers"][0]["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
        let namespace = format!("--namespace={NAMESPACE}");
        Args::try_parse_from(["jobset-webhook", &namespace].into_iter().chain(given)).unwrap()
    }

    fn webhooks(&self) -> Vec<&Value> {
        let of = |kind, name| self.get(kind, name)["webhooks"].as_array().unwrap().iter();
        let mutating = of("MutatingWebhookConfiguration", "jobset-mutating-webhook-configuration");
        mutating.chain(of("ValidatingWebhookConfiguration", "jobset-validating-webhook-configuration")).collect()
    }
}

#[tokio::test]
async fn deployment_fits_together_and_keeps_its_keys() -> Result<()> {
    let plane = Plane::bare().await?;
    let own = Manifests(kustomize(&plane.plane, "kustomize").await?);
    let cert_manager = Manifests(kustomize(&plane.plane, "cert-manager").await?);
    for manifests in [&own, &cert_manager] {
        names_agree(manifests);
        it_stays_available(manifests);
    }
    it_issues_its_own(&own);
    cert_manager_issues(&cert_manager);
    // The API server takes all that it knows the kinds of.
    let known: Vec<_> = cert_manager.0.iter().filter(|it| it["apiVersion"] != "cert-manager.io/v1").cloned().collect();
    apply(&plane.plane, "cert-manager.yaml", &known).await?;
    its_pods_are_admitted(&plane, &cert_manager).await?;
    nobody_writes_with_cert_manager(&plane).await?;
    apply(&plane.plane, "own.yaml", &own.0).await?;
    its_pods_are_admitted(&plane, &own).await?;
    the_ca_is_for_its_issuer_alone(&plane).await?;
    plane.plane.stop().await
}

fn names_agree(manifests: &Manifests) {
    let args = manifests.args().certificates;
    let service = manifests.get("Service", &args.service_name);
    assert_eq!(service["metadata"]["namespace"], NAMESPACE);
    let pod = manifests.get("Deployment", "jobset-webhook");
    let labels = pod["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
    let selector = service["spec"]["selector"].as_object().unwrap();
    assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)), "{selector:?}: {labels:?}");
    assert_eq!(service["spec"]["selector"], pod["spec"]["selector"]["matchLabels"]);
    let port = |name: &str| {
        let ports = manifests.pod()["containers"][0]["ports"].as_array().unwrap();
        ports.iter().find(|it| it["name"] == name).unwrap()["containerPort"].clone()
    };
    let serving = manifests.args().serving;
    assert_eq!((port("https"), port("health")), (json!(serving.listen.port()), json!(serving.health_listen.port())));
    for webhook in manifests.webhooks() {
        let called = &webhook["clientConfig"]["service"];
        assert_eq!((&called["name"], &called["namespace"]), (&json!(args.service_name), &json!(NAMESPACE)));
    }
    manifests.get("ValidatingWebhookConfiguration", &args.validating_webhook_configuration);
    manifests.get("MutatingWebhookConfiguration", &args.mutating_webhook_configuration);
}

fn it_stays_available(manifests: &Manifests) {
    for webhook in manifests.webhooks() {
        let asks = |resource: &str| {
            let mut rules = webhook["rules"].as_array().unwrap().iter();
            rules.any(|rule| rule["resources"].as_array().unwrap().contains(&json!(resource)))
        };
        assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 5, "{webhook}");
        assert!(!asks("jobsets") || webhook["failurePolicy"] == "Fail", "{webhook}");
        let is_of_nodes = webhook["name"] == "mpodnodes.kb.io";
        assert!(!is_of_nodes || webhook["timeoutSeconds"] == 2 && webhook["failurePolicy"] == "Ignore", "{webhook}");
        assert!(!asks("*") && !asks("jobsets/status"), "status goes by the service: {webhook}");
        assert_eq!(webhook["sideEffects"], "None", "a dry run has none: {webhook}");
    }
    let spec = &manifests.get("Deployment", "jobset-webhook")["spec"];
    assert!(spec["replicas"].as_u64().unwrap() >= 2);
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let budget = manifests.get("PodDisruptionBudget", "jobset-webhook");
    assert_eq!(budget["spec"]["minAvailable"], 1);
    assert_eq!(budget["spec"]["selector"], spec["selector"]);
    let pod = manifests.pod();
    let serving = manifests.args().serving;
    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert!(grace > serving.drain_delay + serving.drain_timeout, "{grace:?}");
    let spread = pod["topologySpreadConstraints"].as_array().unwrap();
    assert!(spread.iter().any(|it| it["topologyKey"] == "kubernetes.io/hostname"));
    assert!(spread.iter().all(|it| it["labelSelector"] == spec["selector"]), "it is itself that it keeps away from");
    assert!(pod["containers"][0]["resources"]["limits"]["memory"].is_string());
}

/// As the namespace's Pod security, the priority class and its quota have it.
async fn its_pods_are_admitted(plane: &Plane, manifests: &Manifests) -> Result<()> {
    let pod = manifests.pod();
    let quota = &manifests.get("ResourceQuota", "jobset-webhook")["spec"];
    let selected = &quota["scopeSelector"]["matchExpressions"][0];
    assert_eq!((&selected["scopeName"], &selected["operator"]), (&json!("PriorityClass"), &json!("In")));
    assert_eq!(selected["values"], json!([pod["priorityClassName"]]));
    let quotas: Api<ResourceQuota> = Api::namespaced(plane.client(), NAMESPACE);
    wait::until(LIMIT, "the quota to be counted", async || {
        Ok(quotas.get("jobset-webhook").await?.status.and_then(|it| it.used))
    })
    .await?;
    let template = &manifests.get("Deployment", "jobset-webhook")["spec"]["template"];
    let mut pod =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
    pod["metadata"]["generateName"] = json!("jobset-webhook-");
    let pods: Api<Pod> = Api::namespaced(plane.client(), NAMESPACE);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let admitted = pods.create(&params, &serde_json::from_value(pod)?).await?;
    let priority = admitted.spec.and_then(|it| it.priority).context("no priority")?;
    assert!(priority > 1_000_000_000, "above all that users may ask for: {priority}");
    Ok(())
}

fn it_issues_its_own(manifests: &Manifests) {
    let args = manifests.args().certificates;
    assert_eq!((args.source, args.leaf_secret_name.as_str()), (CertificateSource::Issued, LEAF));
    let rules = &manifests.get("Role", "jobset-webhook")["rules"];
    let only =
        json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [LEAF], "verbs": ["get", "watch"] }]);
    assert_eq!(*rules, only, "its certificate, and nothing else");
    let deployment = &manifests.get("Deployment", "jobset-certs")["spec"];
    assert_eq!((&deployment["replicas"], &deployment["strategy"]["type"]), (&json!(1), &json!("Recreate")));
    let certs = &deployment["template"]["spec"]["containers"][0];
    let arguments = certs["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned());
    let program = ["jobset-certs".to_owned(), format!("--namespace={NAMESPACE}")].into_iter().chain(arguments);
    let issued = jobset_certs::args::Args::parse_from(program);
    let [relay, controller] = ["jobset-relay", "jobset-controller"].map(|name| {
        let volume = &manifests.get("Deployment", name)["spec"]["template"]["spec"]["volumes"][0];
        (name.to_owned(), volume["secret"]["secretName"].as_str().unwrap().to_owned())
    });
    assert_eq!(issued.services, [(args.service_name, LEAF.to_owned()), relay]);
    assert_eq!(issued.clients, [controller]);
    assert_eq!(issued.secret_name, SECRET);
    let ports = &certs["ports"];
    assert_eq!(*ports, json!([{ "name": "health", "containerPort": issued.health_listen.port() }]), "no other port");
}

fn cert_manager_issues(manifests: &Manifests) {
    let args = manifests.args().certificates;
    assert_eq!(args.source, CertificateSource::Mounted);
    let certificate = manifests.get("Certificate", "jobset-webhook");
    let spec = &certificate["spec"];

    // What the API server calls the service by.
    let mut names = Names::default();
    for name in spec["dnsNames"].as_array().unwrap() {
        names = names.with(name.as_str().unwrap()).unwrap();
    }
    assert_eq!(names, Names::of_service(&args.service_name, NAMESPACE).unwrap());

    // From the Certificate by its Secret and volume to the directory.
    let pod = manifests.pod();
    let volume = &pod["volumes"][0];
    assert_ne!(spec["secretName"], SECRET, "which may hold the key of an own CA");
    assert_eq!(volume["secret"]["secretName"], spec["secretName"]);
    let mount = &pod["containers"][0]["volumeMounts"][0];
    assert_eq!((&mount["name"], &mount["readOnly"]), (&volume["name"], &json!(true)));
    assert_eq!(mount["mountPath"].as_str().map(Into::into), args.directory);

    // From the configurations to the Certificate, and from there to a CA.
    let id = format!("{NAMESPACE}/jobset-webhook");
    for (kind, name) in [
        ("MutatingWebhookConfiguration", args.mutating_webhook_configuration),
        ("ValidatingWebhookConfiguration", args.validating_webhook_configuration),
    ] {
        assert_eq!(manifests.get(kind, &name)["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], id);
    }
    let issuer = manifests.get("Issuer", spec["issuerRef"]["name"].as_str().unwrap());
    let ca = manifests.get("Certificate", "jobset-webhook-ca");
    assert_eq!((&ca["spec"]["isCA"], &ca["spec"]["secretName"]), (&json!(true), &issuer["spec"]["ca"]["secretName"]));
    let itself = manifests.get("Issuer", ca["spec"]["issuerRef"]["name"].as_str().unwrap());
    assert_eq!(itself["spec"]["selfSigned"], json!({}));
    for spec in [spec, &ca["spec"]] {
        assert_eq!((&spec["privateKey"]["algorithm"], &spec["privateKey"]["size"]), (&json!("ECDSA"), &json!(256)));
    }
    for (kind, name) in [("Role", "jobset-webhook"), ("ClusterRole", "jobset-certs"), ("Deployment", "jobset-certs")] {
        assert!(manifests.find(kind, name).is_none(), "{kind} {name} is for a CA of its own");
    }
}

const SERVICE: &str = "jobset-system:jobset-webhook";
const CONFIGURATIONS: [(&str, &str); 2] = [
    ("validatingwebhookconfigurations", "jobset-validating-webhook-configuration"),
    ("mutatingwebhookconfigurations", "jobset-mutating-webhook-configuration"),
];

/// All that the API server would let the admission service do: its certificate by name, and what reviews of Pods read.
async fn the_service_may_write_nothing(plane: &Plane) -> Result<()> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(plane.service_client().await?);
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(NAMESPACE.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let status = reviews.create(&PostParams::default(), &review).await?.status.context("no answer")?;
    let mut allowed = Vec::new();
    for rule in status.resource_rules {
        let groups = rule.api_groups.unwrap_or_default();
        // What every user may ask about itself.
        if groups.iter().any(|it| it == "authorization.k8s.io" || it == "authentication.k8s.io") {
            continue;
        }
        allowed.push((
            rule.resources.unwrap_or_default().join(","),
            rule.resource_names.unwrap_or_default(),
            rule.verbs,
        ));
    }
    allowed.sort();
    let verbs = |verbs: &[&str]| verbs.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    // From 1.37 on, Kubernetes has every ServiceAccount read these public certificates.
    let bundles = ("clustertrustbundles".to_owned(), vec![], verbs(&["get", "list", "watch"]));
    allowed.retain(|rule| *rule != bundles);
    let expected = [
        ("jobsets".to_owned(), vec![], verbs(&["get"])),
        ("nodes".to_owned(), vec![], verbs(&["get"])),
        ("pods".to_owned(), vec![], verbs(&["list", "watch"])),
        ("secrets".to_owned(), vec![LEAF.to_owned()], verbs(&["get", "watch"])),
    ];
    assert_eq!(allowed, expected);
    Ok(())
}

async fn nobody_writes_with_cert_manager(plane: &Plane) -> Result<()> {
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete"] {
        for secret in [SECRET, "jobset-webhook-certificate"] {
            assert!(!may(plane, SERVICE, verb, "", "secrets", secret).await?, "{verb} {secret}");
        }
    }
    let group = "admissionregistration.k8s.io";
    for (resource, name) in CONFIGURATIONS {
        for verb in ["get", "list", "watch"] {
            assert!(may(plane, SERVICE, verb, group, resource, name).await?, "{verb} {name}");
            assert!(!may(plane, SERVICE, verb, group, resource, "of-others").await?, "{verb} those of others");
        }
        for verb in ["create", "update", "patch", "delete"] {
            assert!(!may(plane, SERVICE, verb, group, resource, name).await?, "{verb} {name}");
        }
    }
    Ok(())
}

async fn the_ca_is_for_its_issuer_alone(plane: &Plane) -> Result<()> {
    const ISSUER: &str = "jobset-system:jobset-certs";
    for verb in ["get", "list", "watch", "update"] {
        for secret in [SECRET, LEAF] {
            assert!(may(plane, ISSUER, verb, "", "secrets", secret).await?, "{verb}");
        }
        assert!(!may(plane, ISSUER, verb, "", "secrets", "of-others").await?, "{verb} those of others");
    }
    let group = "admissionregistration.k8s.io";
    for (resource, name) in CONFIGURATIONS {
        assert!(may(plane, ISSUER, "patch", group, resource, name).await?, "{name}");
        assert!(!may(plane, ISSUER, "patch", group, resource, "of-others").await?, "those of others");
        for verb in ["create", "update", "delete"] {
            assert!(!may(plane, ISSUER, verb, group, resource, name).await?, "{verb} {name}");
        }
    }
    the_service_may_write_nothing(plane).await?;
    // The agents' role, bound as the manifest says.
    let binding = ["create", "rolebinding", "jobset-agent", "--clusterrole=jobset-agent", "-n", NAMESPACE];
    let agent = format!("--serviceaccount={NAMESPACE}:default");
    plane.kubectl(&[&binding[..], &[&agent]].concat()).await?;
    for account in [SERVICE, "jobset-system:jobset-controller", "jobset-system:default", "default:default"] {
        for verb in ["get", "list", "watch", "create", "update", "patch", "delete"] {
            assert!(!may(plane, account, verb, "", "secrets", SECRET).await?, "{verb} by {account}");
        }
    }
    Ok(())
}

/// Whether the API server allows it to the ServiceAccount (namespace:name).
async fn may(plane: &Plane, account: &str, verb: &str, group: &str, resource: &str, name: &str) -> Result<bool> {
    let asked = ResourceAttributes {
        namespace: group.is_empty().then(|| NAMESPACE.to_owned()),
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        name: Some(name.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{account}")),
        groups: Some(vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()]),
        resource_attributes: Some(asked),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api = Api::<SubjectAccessReview>::all(plane.client());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("no answer")?.allowed)
}
