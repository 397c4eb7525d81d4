//! Test that lists the messages of reconciles in `messages.txt`. `cargo xtask gen` copies this file
//! to the documentation page about diagnostics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, Findings, codes, rendered};
use bundle_core::object::ObjectId;
use bundle_core::object::rejection::Rejection;
use bundle_core::plan::crd_upgrade::existing::{ExistingObjects, Unvalidated};
use bundle_core::plan::health::{Health, health};
use bundle_core::plan::ignore::{self, Rule};
use bundle_core::plan::inventory::{InventoryError, Reservation};
use bundle_core::plan::package_rules::{
    AllowedUpgrades, InstalledPackage, PackageRules, version_refusal,
};
use bundle_core::plan::replace::{self, NoReplacementReason};
use bundle_core::plan::retry::source::NamedContent;
use bundle_core::plan::rollout::{
    HealthyContent, RollbackObstacle, RolloutAttempt, RolloutContent, RolloutReport, RolloutState,
};
use bundle_core::plan::{crd_upgrade, namespace_objects};
use bundle_core::reference::Digest;
use bundle_core::review::{Class, Requester};
use bundle_core::rights::{AccessReview, verdict};
use bundle_core::text::MessageList;
use bundle_core::version::Range;
use kube::api::DynamicObject;
use kube::core::Status;
use serde_json::{Value, json};

use super::apply::ApplyRejection;
use super::bundle::generated;
use super::content::objects::{self, PreparedObject};
use super::deployment::checks::{approvals, content, definitions, namespaces, package_rules};
use super::deployment::{entry, steps};
use super::drift::watch::{WatchError, WatchKey};
use super::error::ReconcileError;
use super::install::collisions::{self, Collisions};
use super::install::phases::ChangedInput;
use super::install::{ready, replace as replacement, requester_permissions};
use super::inventory::error::{InventoryStoreError, Owner};
use super::inventory::namespaces as live_namespaces;
use super::inventory::present::KeptObject;
use super::maintenance::partial;
use super::reader::{self, attempt, chart, parse};
use super::rights::authorize;
use super::rights::dry_runs::failures::DryRunFailures;
use super::rights::missing_rights::MissingRights;
use super::rights::source;
use super::{context, removal};
use crate::clients::cluster::ServiceAccount;
use crate::clients::helm::HelmError;
use crate::clients::registries::PullSecretError;
use crate::sources::UploadSourceError;

const RECORDED: &str = include_str!("messages.txt");
const REASON: &str = "InstallFailed";

fn id(group: &str, version: &str, kind: &str, namespace: Option<&str>, name: &str) -> ObjectId {
    ObjectId {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

fn ana() -> Requester {
    Requester {
        user: "ana".to_owned(),
        ..Requester::default()
    }
}

/// Returns the access review for verb `patch` on Deployments in namespace `team-a`.
fn patch_deployments() -> AccessReview {
    AccessReview::resource("patch", "apps", "deployments", Some("team-a"), None)
}

/// Returns an error response of the API server.
fn response(code: u16, message: &str) -> kube::Error {
    kube::Error::Api(Box::new(Status {
        message: message.to_owned(),
        code,
        ..Status::default()
    }))
}

/// Returns the messages of these errors as Events and conditions contain them.
fn text_of(errors: impl IntoIterator<Item = ReconcileError>) -> String {
    let findings: Vec<Finding> = errors
        .into_iter()
        .map(|error| Finding::error(error.code, error.message))
        .collect();
    rendered(&findings)
}

#[test]
fn messages_of_reconciles_are_recorded() {
    let mut text = text_of(of_content());
    text += &text_of(of_objects());
    text += &text_of(of_dry_runs());
    text += &text_of(of_permissions());
    text += &text_of(of_checks());
    text += &text_of(of_upgrades());
    text += &rendered(&of_rollouts());
    text += &rendered(&of_events());
    let _ = writeln!(text, "warning: {}", rule_without_effect());
    let not_maintained =
        partial::not_maintained("the requesters of the installed content are not recorded");
    let _ = writeln!(text, "warning: {not_maintained}");
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}

/// Returns errors about sources, the cache and memory.
fn of_content() -> Vec<ReconcileError> {
    let digest = Digest::of(b"content");
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let damaged = io::Error::from(io::ErrorKind::UnexpectedEof);
    let pause = Duration::from_secs(3600);
    let other = Class::parse("other", &json!({"provisioner": "example.com/other"})).unwrap();
    vec![
        reader::source_error(
            UploadSourceError::NotUploaded.into(),
            NamedContent::Fixed,
            REASON,
        ),
        reader::source_error(
            UploadSourceError::Lost(digest.clone()).into(),
            NamedContent::Recorded,
            REASON,
        ),
        reader::source_error(
            PullSecretError::named(&"regcred".parse().unwrap()).into(),
            NamedContent::Movable,
            REASON,
        ),
        reader::unstorable(&full, REASON),
        reader::errors::content_too_large(300 << 20, 128 << 20, REASON),
        reader::errors::content_over_limit(129 << 20, 128 << 20, REASON),
        reader::errors::no_memory(REASON),
        reader::fetched_again(REASON),
        parse::read_error::<()>(Err(damaged), REASON).unwrap_err(),
        attempt::process_ended(&digest, pause, REASON),
        chart::rendered_now(REASON),
        chart::postponed(REASON),
        chart::helm_error(HelmError::Missing("helm"), REASON),
        chart::helm_error(HelmError::Limit("160 MiB of memory".to_owned()), REASON),
        context::check_provisioner(&other).unwrap_err(),
        generated::bundle_differs("web-7d4b9"),
        generated::no_free_name_error(&["web-7d4b9".to_owned(), "web-c81f2".to_owned()]),
    ]
}

/// Returns errors about objects of the content and about the inventory.
fn of_objects() -> Vec<ReconcileError> {
    let queue = id("shop.example.com", "v1", "Queue", Some("team-a"), "orders");
    let web = PreparedObject::config_map();
    let owner = Owner {
        deployment: "shop".to_owned(),
        reservation: Reservation::Owned,
    };
    let mut collision = Collisions::default();
    collision.owned.push(format!("{} {owner}", web.key));
    let definition = id(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        None,
        "queues.shop.example.com",
    );
    let live = json!({"status": {"conditions": [
        {"type": "Established", "status": "False", "message": "the names are not accepted"},
    ]}});
    let why = match health(&definition.group, &definition.kind, &live) {
        Health::Waiting(why) | Health::Failed(why) => why,
        Health::Ready => panic!("ready: {live}"),
    };
    let inventory = |error| ReconcileError::inventory(REASON, &error);
    let (count, most) = (25_001, 25_000);
    let too_many = InventoryError::TooMany {
        count,
        what: "objects",
        most,
    };
    vec![
        objects::missing_kinds(&[queue], REASON),
        objects::without_namespace(&[id("", "v1", "ConfigMap", None, "web")], REASON),
        collision.check(REASON).unwrap_err(),
        ready::not_ready(
            &MessageList::from_iter([format!("{definition}: {why}")]),
            REASON,
        ),
        collisions::namespace_created("Namespace/team-a", REASON),
        replacement::replacement_held(
            REASON,
            &MessageList::from_iter([replacement::in_deletion(&web.key)]),
        ),
        inventory(InventoryStoreError::Api {
            doing: "write",
            source: response(504, "etcdserver: request timed out"),
        }),
        inventory(InventoryStoreError::Inventory(too_many)),
        ChangedInput::SpecOrClass.error(REASON),
    ]
}

/// Returns errors about dry runs of ConfigMap `web` as user ana.
fn of_dry_runs() -> Vec<ReconcileError> {
    let denied = r#"configmaps "web" is forbidden: User "ana" cannot patch resource "configmaps" in API group "" in the namespace "team-a""#;
    let quota = r#"configmaps "web" is forbidden: exceeded quota: objects, requested: count/configmaps=1, used: count/configmaps=20, limited: count/configmaps=20"#;
    let unsupported =
        r#"admission webhook "images.example.com" does not support dry run: sideEffects is Some"#;
    let impersonation = r#"users "ana" is forbidden: User "system:serviceaccount:bundle-system:bundle-webhook" cannot impersonate resource "users" in API group "" at the cluster scope"#;
    let untyped = "failed to create typed patch object (team-a/web; /v1, Kind=ConfigMap): .data.replicas: expected string, got &value.valueUnstructured{Value:2}";
    let immutable = replace::sentence(&["data"], NoReplacementReason::NotRequested);
    let judged = |code, message: &str| {
        ApplyRejection::Verdict(verdict(Rejection {
            code,
            reason: "",
            message,
            fields: &[],
        }))
    };
    let fields = vec!["metadata.labels[cost-center]".to_owned()];
    let rejections = [
        judged(403, denied),
        judged(403, quota),
        judged(422, &immutable),
        judged(400, unsupported),
        judged(403, impersonation),
        judged(500, untyped),
        judged(504, "the server was unable to return a response in time"),
        ApplyRejection::MutatedDifferently(fields),
    ];
    let errors = rejections.into_iter().map(|rejection| {
        let mut failures = DryRunFailures::default();
        failures.add(&PreparedObject::config_map(), rejection);
        failures.into_result("ana", REASON).unwrap_err()
    });
    errors.collect()
}

/// Returns errors about permissions.
fn of_permissions() -> Vec<ReconcileError> {
    let mut missing = MissingRights::default();
    missing.push(patch_deployments());
    let question = AccessReview::resource(
        "impersonate",
        "",
        "serviceaccounts",
        Some("team-a"),
        Some("deployer"),
    );
    let lost = requester_permissions::lost_permission(&ana(), &question, REASON);
    let key = WatchKey {
        account: ServiceAccount::parse("team-a", "deployer").unwrap(),
        kind: PreparedObject::config_map().kind,
        namespace: Some("team-a".to_owned()),
    };
    let forbidden = r#"configmaps is forbidden: User "system:serviceaccount:team-a:deployer" cannot list resource "configmaps" in API group "" in the namespace "team-a""#;
    let failures = [
        WatchError::failed(&key, forbidden.to_owned()),
        WatchError::TooMany {
            wanted: 120,
            requester: "ana".to_owned(),
            most: 100,
            capacity: 200,
        },
    ];
    let mut errors = vec![
        missing.check("ana").unwrap_err(),
        authorize::unknown(&ana(), &response(503, "the server is starting")),
        requester_permissions::withdrawn_from_installed(lost),
        source::not_allowed(
            codes::review::SECRET_NOT_ALLOWED,
            "ana",
            "bundle-system",
            "Secret git-login",
        ),
    ];
    errors.extend(
        failures.into_iter().map(|error| {
            ReconcileError::new(error.code(), REASON, error.to_string(), error.retry())
        }),
    );
    errors
}

/// Returns errors of the checks before content is installed.
fn of_checks() -> Vec<ReconcileError> {
    let digest = Digest::of(b"content");
    let web = id("", "v1", "ConfigMap", Some("other"), "web");
    let reserved = id("", "v1", "ConfigMap", Some("bundle-system"), "web");
    let deployment = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "web", "uid": "3f1c", "generation": 2},
    });
    let deployment: DynamicObject = serde_json::from_value(deployment).unwrap();
    let missing = live_namespaces::missing(BTreeSet::from(["team-a"]), &BTreeMap::new());
    vec![
        approvals::not_approved(&deployment, digest.as_str(), Vec::new()),
        content::outside_targets(&[&web], "team", REASON),
        content::in_reserved_namespace(&[&reserved], "team", REASON),
        namespaces::missing_namespaces(&missing, REASON),
        namespaces::namespaces_replaced(&BTreeSet::from(["team-a"]), REASON),
    ]
}

/// Returns errors about the rules in `bundle.yaml` and about CustomResourceDefinitions.
fn of_upgrades() -> Vec<ReconcileError> {
    let definition = |schema: Value| {
        json!({
            "metadata": {"name": "jugs.example.com"},
            "spec": {"scope": "Namespaced", "versions": [
                {"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}},
            ]},
            "status": {"storedVersions": ["v1"]},
        })
    };
    let old = definition(json!({"type": "object", "properties": {"litres": {"type": "integer"}}}));
    let new = definition(json!({"type": "object", "required": ["size"]}));
    let verdict = crd_upgrade::compare(&old, &new, &[]);
    let package = |upgrades: &str| {
        let text = format!(
            "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\nrequires: {{packages: [{{name: cert-manager, version: ^1.14}}]}}\nupgrades: {{from: {upgrades:?}}}\n"
        );
        PackageRules::new(&bundle_core::package::parse(text.as_bytes()).unwrap())
    };
    let installed = |version: &str| InstalledPackage {
        name: "web".to_owned(),
        version: Some(version.to_owned()),
        digest: String::new(),
    };
    let refusals = |upgrades: &str, installed: &InstalledPackage| {
        let allowed = AllowedUpgrades::default();
        package(upgrades).upgrade_refusals(installed, "other", allowed)
    };
    let range = Range::parse("^1.4").unwrap();
    let outside = |version: &str| -> Findings {
        version_refusal(Some(version), &range).into_iter().collect()
    };
    let other = InstalledPackage {
        name: "shop".to_owned(),
        ..installed("1.5.0")
    };
    let jug = json!({"metadata": {"namespace": "team-a", "name": "blue"}, "spec": {"litres": 12}});
    let new = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
        "properties": {"spec": {"properties": {"litres": {"type": "integer", "maximum": 9}}}},
    }}}]}});
    let mut jugs = ExistingObjects::new(&new);
    let versions = ["v1".to_owned()];
    for can_be_named in [true, false] {
        let added = jugs.add(&jug, &versions, can_be_named, || Ok(()));
        added.unwrap();
    }
    let crd = "jugs.example.com";
    vec![
        definitions::unsafe_upgrades(&[(crd, verdict)], REASON),
        definitions::invalid_resources(vec![jugs.message(crd)], REASON),
        definitions::unvalidated(crd, &Unvalidated::Objects(10_000), REASON),
        definitions::unvalidated(crd, &Unvalidated::Versions(32), REASON),
        definitions::unvalidated(crd, &Unvalidated::Steps, REASON),
        definitions::unvalidated(crd, &Unvalidated::ObjectSteps(4_000_000), REASON),
        definitions::busy(REASON),
        package_rules::requirements_missing(&package(">=1.2").unmet(|_| true, &[])),
        package_rules::upgrade_refused(&refusals(">=1.2", &installed("1.1.0")), REASON),
        package_rules::upgrade_refused(&refusals(">=1.2", &installed("1.5.0")), REASON),
        package_rules::upgrade_refused(&refusals(">=1.2", &other), REASON),
        package_rules::upgrade_refused(&outside("2.0.0"), REASON),
        package_rules::upgrade_refused(&outside("1.5.0-rc.1"), REASON),
    ]
}

/// Returns the reports about rollouts that failed.
fn of_rollouts() -> Vec<Finding> {
    let cause = || "Deployment.apps/team-a/web: 0 of 1 replicas are available".to_owned();
    let held = |obstacle: Option<&RollbackObstacle>| RolloutState::Failed {
        cause: cause(),
        obstacle: obstacle.map(ToString::to_string),
    };
    let former = HealthyContent {
        content: RolloutContent::new("web-7d4b9", "", &Value::Null),
        ..HealthyContent::default()
    };
    let reports = [
        (codes::install::DEADLINE_EXCEEDED, held(None)),
        (
            codes::install::ROLLED_BACK,
            RolloutState::RolledBack { cause: cause() },
        ),
        (
            codes::install::RETURN_REFUSED,
            held(Some(&RollbackObstacle::NoFormerContent)),
        ),
    ];
    let findings = reports.into_iter().map(|(code, state)| {
        let attempt = RolloutAttempt {
            content: RolloutContent::new("web-c81f2", "", &Value::Null),
            state,
            ..RolloutAttempt::default()
        };
        let report = RolloutReport::of(&attempt, Some(&former), Duration::from_secs(600));
        Finding::error(code, report.unwrap().message())
    });
    findings.collect()
}

/// Returns notes of Events that no condition contains.
fn of_events() -> Vec<Finding> {
    let kinds = ["Secret".to_owned()].into();
    let kept = KeptObject {
        id: id("", "v1", "Namespace", None, "team-a"),
        why: namespace_objects::in_use(&kinds, &[]).unwrap().into(),
    };
    let in_use = removal::steps::namespace_in_use(&kept);
    vec![
        Finding::error(codes::install::CLASS_GONE, entry::class_gone("team")),
        Finding::error(codes::install::NAMESPACE_IN_USE, in_use),
    ]
}

/// Returns the warning about an ignore rule that matches no object.
fn rule_without_effect() -> String {
    let rule = Rule {
        kind: None,
        namespace: None,
        name: Some("worker".to_owned()),
        fields: vec!["/spec/replicas".to_owned()],
        manager: None,
    };
    let web = PreparedObject::config_map();
    let lines = ignore::without_effect(&[rule], &[(&web.id, &web.value)]);
    steps::ignore_warning(&lines[0])
}
