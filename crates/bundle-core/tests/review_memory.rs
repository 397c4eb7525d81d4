//! Memory that the rules of an admission review allocate: at most the size of the spec's text plus
//! a constant. The memory budget of a review covers the parsed objects and the text. The text is
//! dropped before the rules run, so the rules can use the memory of the text. The facts that stamp
//! and seal prove have a separate reservation.

use std::sync::{Mutex, PoisonError};

use bundle_core::footprint;
use bundle_core::review::approval_terms;
use bundle_core::review::stamp::admit_token;
use bundle_core::review::{
    CheckedDeploymentSpec, Kind, PartRequesters, Requester, ReviewFacts, SealCheckContext, Stamp,
    StampState, StampTarget, StoredObject, Subject, judge, needs, same, seal, seal_state,
    spec_digest, template_hash, written_digest,
};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Memory that does not depend on the spec, in bytes: findings, settings and paths of fields.
const CONSTANT: usize = 512 << 10;

/// Lock of the measurements, because the allocator counts the memory of all threads.
static MEASUREMENT: Mutex<()> = Mutex::new(());

/// Returns the peak of the memory that `work` allocates, in bytes.
fn peak(work: impl FnOnce()) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    work();
    ALLOCATOR.peak_usage().saturating_sub(before)
}

fn base() -> Value {
    let source = json!({"type": "image", "image": {"ref": "registry.example.com/web:1"}});
    json!({
        "provisionerClassName": "plain",
        "template": {"metadata": {}, "spec": {"provisionerClassName": "plain", "source": source}},
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut spec = base();
    let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
    let mut at = &mut spec;
    for part in parent.split('/').skip(1) {
        at = &mut at[part];
    }
    at[name] = value;
    spec
}

fn map(count: usize, value: &Value) -> Value {
    (0..count)
        .map(|number| (format!("k{number}"), value.clone()))
        .collect()
}

/// Returns specs whose parsed form needs much more memory than their text. Each spec has the large
/// value in a different field.
fn specs() -> Vec<(&'static str, Value)> {
    let lists = |count| json!(vec![json!([0]); count]);
    let chain = (0..100).fold(map(8_000, &Value::Null), |inner, _| json!({ "a": inner }));
    let long = || json!("x".repeat(2 << 20));
    let rule = |fields: usize| json!({ "fields": vec!["/a"; fields] });
    vec![
        (
            "config of lists",
            with(
                "/config",
                json!({"l": lists(40_000), "pad": "x".repeat(600_000)}),
            ),
        ),
        (
            "config of maps",
            with("/config", json!(vec![json!({"a": 0}); 12_000])),
        ),
        ("unknown member of lists", with("/other", lists(40_000))),
        ("members that say nothing", with("/other", chain)),
        (
            "labels",
            with("/template/metadata/labels", map(15_000, &json!(""))),
        ),
        (
            "labels that are no texts",
            with("/template/metadata/labels", map(15_000, &json!(0))),
        ),
        (
            "annotations",
            with("/template/metadata/annotations", map(15_000, &json!("b"))),
        ),
        (
            "rules that are none",
            with("/drift/ignore", json!(vec![0; 80_000])),
        ),
        (
            "rules",
            with(
                "/drift/ignore",
                json!(vec![json!({"manager": "a"}); 12_000]),
            ),
        ),
        (
            "fields of a rule",
            with("/drift/ignore", json!([rule(80_000)])),
        ),
        (
            "fields of many rules",
            with("/drift/ignore", json!(vec![rule(200); 400])),
        ),
        (
            "exceptions",
            with(
                "/crdUpgrades/exceptions",
                json!(vec![json!({"crd": "a"}); 12_000]),
            ),
        ),
        (
            "ConfigMaps",
            with(
                "/template/spec/source",
                json!({"type": "configMaps", "configMaps": vec![json!({"path": "/"}); 12_000]}),
            ),
        ),
        (
            "a long reference",
            with("/template/spec/source/image/ref", long()),
        ),
        ("a long type", with("/template/spec/source/type", long())),
        ("a long choice", with("/collision", long())),
        ("a long class", with("/provisionerClassName", long())),
    ]
}

/// Runs all rules of a review on a spec, and returns the peak memory of each rule, in bytes.
fn rules(spec: &Value, object: &Value, old: &Value) -> Vec<(&'static str, usize)> {
    let subject = |old| Subject {
        kind: Kind::BundleDeployment,
        name: "web",
        old,
        new: object,
        stamp_state: StampState::Stamped,
        admits: false,
        own: false,
    };
    vec![
        ("parse", peak(|| drop(CheckedDeploymentSpec::parse(spec)))),
        ("spec_digest", peak(|| drop(spec_digest(spec)))),
        ("written_digest", peak(|| drop(written_digest(spec)))),
        (
            "template_hash",
            peak(|| drop(template_hash(&spec["template"]))),
        ),
        ("approval_terms", peak(|| drop(approval_terms(spec)))),
        (
            "admit_token",
            peak(|| drop(admit_token(b"key", "a", "b", "c", spec))),
        ),
        ("same", peak(|| assert!(!same(spec, &old["spec"])))),
        (
            "changed_parts",
            peak(|| assert!(!subject(Some(old)).changed_parts().any_of_content())),
        ),
        ("needs", peak(|| drop(needs(&subject(None))))),
        (
            "judge of a create",
            peak(|| drop(judge(&subject(None), &ReviewFacts::default()))),
        ),
        (
            "judge of an update",
            peak(|| drop(judge(&subject(Some(old)), &ReviewFacts::default()))),
        ),
    ]
}

#[test]
fn rules_of_reviews_allocate_at_most_the_text_of_a_spec() {
    let _measurement = MEASUREMENT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut worse = Vec::new();
    for (shape, spec) in specs() {
        let text = spec.to_string();
        let weight = footprint::of_json(text.as_bytes()).unwrap().0;
        let object = json!({"metadata": {"name": "web"}, "spec": &spec});
        let mut old = object.clone();
        old["spec"]["paused"] = true.into();
        for (rule, peak) in rules(&spec, &object, &old) {
            // An update contains the old and the new object, so twice the text is allowed.
            let allowed = 2 * text.len() + CONSTANT;
            if peak > allowed {
                worse.push(format!(
                    "{shape}: {rule} allocates {} KiB, text {} KiB, tree {} KiB",
                    peak >> 10,
                    text.len() >> 10,
                    weight >> 10
                ));
            }
        }
    }
    // Any user with write permission can set the annotation, which is parsed before its MAC is
    // checked.
    let stamp = json!(vec![json!([0]); 80_000]).to_string();
    let peak = peak(|| assert!(Stamp::read(b"key", Some(&stamp)).is_err()));
    if peak > stamp.len() + CONSTANT {
        worse.push(format!("reading a stamp allocates {} KiB", peak >> 10));
    }
    assert!(worse.is_empty(), "{}", worse.join("\n"));
}

#[test]
fn facts_of_a_large_identity_need_at_most_their_estimated_memory() {
    const KEY: &[u8] = b"key";
    const NOON: i64 = 1_800_000_000_000;
    let _measurement = MEASUREMENT.lock().unwrap_or_else(PoisonError::into_inner);
    let group = |number: usize| format!("{number:040}");
    let requester = Requester {
        user: "ana".to_owned(),
        groups: (0..2_000).map(group).collect(),
        ..Requester::default()
    };
    let spec = base();
    let stamp = Stamp {
        time: NOON,
        kind: "BundleDeployment".to_owned(),
        name: "web".to_owned(),
        target: Some(StampTarget {
            uid: "u".to_owned(),
            generation: 1,
        }),
        spec: written_digest(&spec),
        parts: PartRequesters::all(&requester),
        approves: None,
        generated_for: None,
        owners: None,
        admitted_at: None,
    };
    let stamp = stamp.text(KEY);
    let stamped = StoredObject {
        kind: Kind::BundleDeployment,
        name: "web",
        uid: "u",
        generation: 1,
        created: Some(NOON),
        written: Some(NOON),
        deleting: false,
        spec: &spec,
        stamp: Some(&stamp),
        seal: None,
    };
    let moment = SealCheckContext {
        now: NOON + 1_000,
        intact_since: Some(0),
    };
    let facts = seal_state(KEY, &stamped, &moment).confirmed_facts();
    let seal = seal(KEY, &stamped, &facts.unwrap());
    let sealed = StoredObject {
        seal: Some(&seal),
        ..stamped
    };
    for object in [stamped, sealed] {
        let memory = usize::try_from(object.facts_memory().0).unwrap();
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let facts = seal_state(KEY, &object, &moment).confirmed_facts().unwrap();
        let held = ALLOCATOR.current_usage().saturating_sub(before);
        let peak = ALLOCATOR.peak_usage().saturating_sub(before);
        assert_eq!(*facts.parts.class, requester);
        // The groups are in memory once, although each of the five parts has a requester.
        assert!(held <= memory && held < 2_000 * 100, "{held} of {memory}");
        assert!(peak <= memory + CONSTANT, "{peak} of {memory}");
    }
}
