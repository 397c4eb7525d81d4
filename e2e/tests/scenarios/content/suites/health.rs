//! Health results of kstatus and Argo CD, compared with this project: for the objects of their own
//! test suites, and for the objects of `matrix`.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::plan::health::differences::{ComparableHealth, DIFFERENCES, HealthTool};
use bundle_core::plan::health::{Health, has_health, health};
use e2e::Tool;
use e2e::cluster::manifests;
use e2e::tools::published;
use serde_json::Value;

use super::exceptions::{condition_of, group_kind, has};
use super::{matrix, verdicts};

/// Module, and folder with the health rules of Argo CD and their test data.
const ARGO: (&str, &str) = (
    "github.com/argoproj/argo-cd/gitops-engine",
    "pkg/health/testdata",
);
/// Module and file with the objects of the tests of kstatus, which are string literals of Go.
const KSTATUS: (&str, &str) = (
    "sigs.k8s.io/cli-utils",
    "pkg/kstatus/status/status_compute_test.go",
);

/// Returns the health of an object by the rules of this project, which the pod and `kubectl bundle
/// status` use.
fn verdict_here(object: &Value) -> ComparableHealth {
    let (group, kind) = group_kind(object);
    if !has_health(group, kind) {
        return ComparableHealth::Ready;
    }
    match health(group, kind, object) {
        Health::Ready => ComparableHealth::Ready,
        Health::Waiting(_) => ComparableHealth::Waiting,
        Health::Failed(_) => ComparableHealth::Failed,
    }
}

fn verdict_there(answer: &Value) -> ComparableHealth {
    match answer["status"].as_str() {
        Some("Current" | "Healthy") => ComparableHealth::Ready,
        // Argo CD has no health check for the kind.
        None if answer["error"].is_null() => ComparableHealth::Ready,
        Some("InProgress" | "Terminating" | "Progressing") => ComparableHealth::Waiting,
        Some("Failed" | "Degraded") => ComparableHealth::Failed,
        Some("Suspended") => ComparableHealth::Suspended,
        _ => ComparableHealth::Unknown,
    }
}

/// Returns a test object in the form in which an API server stores it. Returns `None` if an API
/// server would reject the object.
fn stored(mut object: Value) -> Option<Value> {
    let (group, kind) = group_kind(&object);
    match (group, kind) {
        // API servers reject the group `something`, because the group of a custom resource must
        // contain a dot.
        ("something", _) => None,
        // The Job controller never sets the status of the condition `Failed` to `False`: it removes
        // the condition instead.
        ("batch", "Job") if has(&object, "Failed", "False") => None,
        ("", "Pod") => {
            let policy = &mut object["spec"]["restartPolicy"];
            if policy.is_null() {
                *policy = "Always".into();
            }
            Some(object)
        }
        _ => Some(object),
    }
}

/// Returns the objects in `texts`, except those with duplicate keys, which this project rejects.
fn readable(texts: impl Iterator<Item = String>) -> Vec<Value> {
    let read = |text: String| manifests::parse(text.as_bytes(), "test data");
    texts
        .flat_map(|text| match read(text) {
            Ok(objects) => objects,
            Err(error) => {
                assert!(error.to_string().contains("appears twice"), "{error}");
                Vec::new()
            }
        })
        .filter_map(stored)
        .collect()
}

/// Returns the objects in the tests of Argo CD.
async fn objects_of_argo() -> Vec<Value> {
    let folder = published::module(Tool::ArgoHealth, ARGO.0).await.unwrap();
    let files: Result<Vec<_>, _> = fs_err::read_dir(folder.join(ARGO.1)).unwrap().collect();
    let texts = files
        .unwrap()
        .into_iter()
        .map(|file| fs_err::read_to_string(file.path()).unwrap());
    let objects = readable(texts);
    assert!(objects.len() > 40, "{}", objects.len());
    objects
}

/// Returns the objects in the tests of kstatus.
async fn objects_of_kstatus() -> Vec<Value> {
    let folder = published::module(Tool::Kstatus, KSTATUS.0).await.unwrap();
    let source = fs_err::read_to_string(folder.join(KSTATUS.1)).unwrap();
    // Every second part is a Go string between backquotes. The tests replace `%s` with the creation
    // time.
    let strings = source.split('`').skip(1).step_by(2);
    let texts = strings
        .filter(|text| text.contains("apiVersion:"))
        .map(|text| text.replace("%s", "2026-01-01T00:00:00Z"));
    let objects = readable(texts);
    assert!(objects.len() > 40, "{}", objects.len());
    objects
}

/// Compares the health of all objects with the results of one other project. Returns the names of
/// the documented differences that apply to at least one object.
async fn compare(tool: HealthTool, program: Tool, objects: Vec<Value>) -> BTreeSet<&'static str> {
    let answers = verdicts(program, serde_json::to_string(&objects).unwrap()).await;
    assert_eq!(answers.len(), objects.len());
    let rows: Vec<_> = DIFFERENCES.iter().filter(|row| row.tool == tool).collect();
    let mut used = BTreeSet::new();
    // The list contains one object for each kind of difference, because thousands of objects can
    // differ.
    let mut undocumented = BTreeMap::new();
    for (object, answer) in objects.iter().zip(&answers) {
        let (here, there) = (verdict_here(object), verdict_there(answer));
        if here == there {
            continue;
        }
        let matching = rows.iter().filter(|row| {
            row.here.contains(&here)
                && row.there.contains(&there)
                && condition_of(row.name).is_some_and(|applies| applies(object))
        });
        let names: Vec<_> = matching.map(|row| row.name).collect();
        if names.is_empty() {
            let kind = object["kind"].to_string();
            let sample = undocumented.entry((kind, here, there));
            sample.or_insert_with(|| (0, object, answer)).0 += 1;
        }
        used.extend(names);
    }
    let undocumented: Vec<String> = undocumented
        .into_iter()
        .map(|((kind, here, there), (count, object, answer))| {
            format!("{count} × {kind}: {here} here, {there} in {tool} ({answer}), such as {object}")
        })
        .collect();
    assert!(undocumented.is_empty(), "{}", undocumented.join("\n"));
    used
}

async fn assert_documented(tool: HealthTool, program: Tool) {
    let mut objects = objects_of_argo().await;
    objects.extend(objects_of_kstatus().await);
    objects.extend(matrix::objects());
    let used = compare(tool, program, objects).await;
    let rows = DIFFERENCES.iter().filter(|row| row.tool == tool);
    let documented: BTreeSet<_> = rows.map(|row| row.name).collect();
    // A documented difference that applies to no object is outdated.
    assert_eq!(used, documented);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_differs_from_kstatus_only_where_documented() {
    assert_documented(HealthTool::Kstatus, Tool::Kstatus).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_differs_from_argo_cd_only_where_documented() {
    assert_documented(HealthTool::ArgoCd, Tool::ArgoHealth).await;
}
