//! Tests of the review rules, by subject, and their common facts.

mod approvals;
mod content;
mod messages;
mod permissions;
mod stamps;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::{
    package,
    policy::{KeyId, Policy, SignatureResult, Unavailable},
    review::{
        AccessReviewResult, Class, ConfigMapFact, ContentFact, DeploymentFact, Requester, needs,
        text,
    },
    version::ServerVersion,
};

const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn bundle_spec(class: &str) -> Value {
    json!({"provisionerClassName": class, "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}})
}

fn bundle(class: &str) -> Value {
    json!({"metadata": {"name": "web"}, "spec": bundle_spec(class)})
}

fn deployment(more: &Value) -> Value {
    let mut spec =
        json!({"provisionerClassName": "plain", "template": {"spec": bundle_spec("plain")}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn create(kind: Kind, new: &Value) -> Subject<'_> {
    Subject {
        kind,
        name: "web",
        old: None,
        new,
        stamp_state: StampState::Unstamped,
        admits: false,
        own: false,
    }
}

fn update<'a>(kind: Kind, old: &'a Value, new: &'a Value, stamp_state: StampState) -> Subject<'a> {
    Subject {
        old: Some(old),
        stamp_state,
        ..create(kind, new)
    }
}

fn class(name: &str, more: &Value) -> (String, ClassFact) {
    let mut spec = json!({"provisioner": "core.rukpak.io/plain", "serviceAccount": {"namespace": "bundle-system", "name": "installer"}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let class = Class::parse(name, &spec).unwrap();
    (name.to_owned(), ClassFact::Known(Box::new(class)))
}

fn found(kubernetes: Option<&str>) -> ContentFact {
    let mut annotations = BTreeMap::from([
        (package::keys::FORMAT.to_owned(), "plain+v0".to_owned()),
        (package::keys::TITLE.to_owned(), "web".to_owned()),
        (package::keys::VERSION.to_owned(), "1.4.0".to_owned()),
    ]);
    if let Some(range) = kubernetes {
        annotations.insert(
            package::keys::KUBERNETES.to_owned(),
            json!({"supported": range, "unsupported": "Reject"}).to_string(),
        );
    }
    let reference: crate::reference::Reference = "registry.example.com/web:1".parse().unwrap();
    ContentFact::Found {
        pinned: reference.pin(DIGEST.parse().unwrap()),
        package: package::PackageDescription::from_annotations(&annotations).map(Box::new),
        signatures: Ok(Vec::new()),
    }
}

/// Returns facts that admit each valid write: the requester has all permissions.
fn fine<'a>() -> ReviewFacts<'a> {
    ReviewFacts {
        requester: Requester {
            user: "ana".into(),
            ..Requester::default()
        },
        classes: BTreeMap::from([class("plain", &json!({}))]),
        may_use: BTreeMap::from([("plain".to_owned(), AccessReviewResult::Allowed)]),
        content: found(None),
        server: ServerVersion::parse("v1.36.3-eks-abc").ok(),
        system_namespace: "bundle-system".into(),
        state_namespace: "bundle-system-state".into(),
        ..ReviewFacts::default()
    }
}

fn codes_of(verdict: &Verdict) -> Vec<&'static str> {
    verdict
        .findings()
        .iter()
        .map(|finding| finding.code.id)
        .collect()
}

fn message(verdict: &Verdict) -> String {
    text::refusal(verdict).unwrap().message
}

fn stamp_of(subject: &Subject<'_>, facts: &ReviewFacts<'_>) -> StampChange {
    match judge(subject, facts) {
        Verdict::Admit { stamp, .. } => stamp,
        other => panic!("{other:?}"),
    }
}
