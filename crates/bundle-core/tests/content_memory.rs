//! Limits of the memory that the program allocates for content. The *weight* of content is an upper
//! estimate of the memory of its parsed and rendered objects.
//!
//! - Calculating the weight allocates at most a constant amount of memory.
//! - Parsing and rendering allocate at most the sum of the weight and this constant amount. Content
//!   that needs more memory is rejected.
//! - Calculating the permissions that roles grant allocates at most a constant amount of memory.
//! - Measuring and hashing the JSON of an object allocates at most a constant amount of memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bundle_core::cancellation::Cancellation;
use bundle_core::configuration;
use bundle_core::diagnostic::codes;
use bundle_core::files::Files;
use bundle_core::format::{self, CommandOutput, ReadFiles, RenderInput, RenderTarget};
use bundle_core::json;
use bundle_core::object::{Manifest, ObjectId};
use bundle_core::package::Config;
use bundle_core::plan::unchanged::RequestHash;
use bundle_core::rights;
use bundle_core::yaml::{self, Allowance, Weight};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Memory for keys and events that the parser stores, in bytes (`yaml::limits`). This memory does
/// not depend on the content.
const CONSTANT: usize = 12 << 20;
/// Memory of a prepared object in addition to its JSON tree, in bytes. The estimate of the webhook
/// uses the same value.
const PER_OBJECT: u64 = 3 << 10;

/// Maximum memory for calculating the permissions that the roles of one content grant, in bytes.
const PERMISSIONS: usize = 16 << 20;

/// The allocator counts all threads, so one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the peak of the memory that `work` allocates, in bytes, and the result of `work`.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    (ALLOCATOR.peak_usage().saturating_sub(before), result)
}

fn map(keys: usize) -> String {
    let entries: Vec<_> = (0..keys).map(|key| format!("k{key}: 0\n")).collect();
    entries.concat()
}

fn flow_map(keys: usize) -> String {
    let entries: Vec<_> = (0..keys).map(|key| format!("k{key}: 0,")).collect();
    format!("{{{}}}", entries.concat())
}

/// Documents for which a parser stores much more than the values in the documents.
fn documents() -> Vec<(&'static str, String)> {
    let list = |values| format!("[{}]", "0,".repeat(values));
    let lists = |lists| format!("[{}]", "[0],".repeat(lists));
    let indented = |keys| map(keys).replace('k', "  k");
    // The parser buffers at most 96 consecutive comments if it returns comments.
    let comments = "# c\n".repeat(97);
    vec![
        ("a map with many keys", map(70_000)),
        (
            "many separators",
            format!("{}a: 1\n", "---\n".repeat(2 << 20)),
        ),
        (
            "a merged map with many keys",
            format!("a: 1\n<<: {}\n", flow_map(20_000)),
        ),
        (
            "a merged block with many keys",
            format!("a: 1\n<<:\n{}", indented(20_000)),
        ),
        (
            "many merged maps",
            format!("<<: [{}]\n", "{a: 0},".repeat(20_000)),
        ),
        (
            "an alias of a map, merged",
            format!("a: &a {}\nb: {{<<: *a}}\n", flow_map(8_000)),
        ),
        (
            "an alias of a merge key",
            format!("a: &a <<\n*a : {}\n", flow_map(20_000)),
        ),
        (
            "a merge beside many keys",
            format!("{}<<: {{a: 1}}\n", map(70_000)),
        ),
        (
            "a merge within the limit",
            format!("a: 1\n<<: {}\n", flow_map(3_990)),
        ),
        (
            "an alias of a map within the limit, merged",
            format!("a: &a {}\nb: {{<<: *a}}\n", flow_map(1_900)),
        ),
        ("a list as key", format!("? {}\n: 0\n", list(60_000))),
        (
            "lists as key",
            format!("a:\n  ? {}\n  : 0\n", lists(30_000)),
        ),
        (
            "a list as key after comments",
            format!("a:\n{comments}  b\n? {}\n: 0\n", lists(30_000)),
        ),
        (
            "a list as key in a flow map",
            format!("{{? {} : 0}}\n", list(60_000)),
        ),
        (
            "a map as key after another key",
            format!("{{a: 0, {}: 0}}\n", flow_map(30_000)),
        ),
        (
            "a list as implicit key",
            format!("{{{}: 0}}\n", list(60_000)),
        ),
        (
            "an alias of a list as key",
            format!("a: &a {}\n*a : 0\n", list(30_000)),
        ),
        (
            "an alias of a list within the limit as key",
            format!("a: &a {}\n*a : 0\n", list(11_900)),
        ),
        ("an anchor", format!("a: &a {}\nb: 0\n", list(60_000))),
        (
            "anchors within each other",
            (0..20).fold(list(1_100), |inner, n| format!("&a{n} [{inner}]")),
        ),
    ]
}

#[test]
fn weighing_and_parsing_a_document_store_no_more_than_a_constant() {
    let _alone = alone();
    for (name, text) in documents() {
        let weigh = || yaml::weigh(text.as_bytes(), "a.yaml", &mut Allowance::default());
        let (weighing, weight) = peak(weigh);
        assert!(weighing < CONSTANT, "{name}: {} KiB", weighing >> 10);
        let limit = weight.map_or(0, |weight| usize::try_from(weight.tree.0).unwrap()) + CONSTANT;
        let (parsing, _) = peak(|| yaml::documents(text.as_bytes(), "a.yaml"));
        let (used, most) = (parsing >> 10, limit >> 10);
        assert!(parsing < limit, "{name}: {used} of {most} KiB");
    }
}

#[test]
fn document_that_the_parser_stores_is_limited_and_a_large_map_is_not() {
    let _alone = alone();
    let result = |wanted: &str| {
        let documents = documents();
        let (_, text) = documents.iter().find(|(name, _)| *name == wanted).unwrap();
        let weighed = yaml::weigh(text.as_bytes(), "a.yaml", &mut Allowance::default());
        weighed.map(|_| ()).map_err(|finding| finding.code)
    };
    let too_complex = Err(codes::format::TOO_COMPLEX);
    let unreadable = Err(codes::format::UNREADABLE);
    for (name, expected) in [
        ("a map with many keys", Ok(())),
        ("a merge within the limit", Ok(())),
        ("an alias of a map within the limit, merged", Ok(())),
        ("a merged map with many keys", too_complex),
        ("a merge beside many keys", too_complex),
        ("an alias of a merge key", too_complex),
        ("a list as key", unreadable),
        ("a list as key after comments", unreadable),
        ("a map as key after another key", unreadable),
    ] {
        assert_eq!(result(name), expected, "{name}");
    }
}

/// Returns an operator with these deployments and permissions.
fn operator(deployments: &[Value], permissions: &[Value]) -> Files {
    let annotations = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  operators.operatorframework.io.bundle.package.v1: op\n";
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "op.v1.0.0"},
        "spec": {
            "version": "1.0.0",
            "installModes": [
                {"type": "AllNamespaces", "supported": true},
                {"type": "MultiNamespace", "supported": true},
            ],
            "install": {"strategy": "deployment", "spec": {
                "deployments": deployments,
                "permissions": permissions,
                "clusterPermissions": permissions,
            }},
        },
    });
    Files::from_iter([
        ("metadata/annotations.yaml".to_owned(), annotations.into()),
        (
            "manifests/csv.json".to_owned(),
            csv.to_string().into_bytes(),
        ),
    ])
}

/// Returns an operator with one deployment and this number of admission webhooks.
#[expect(clippy::unwrap_used, reason = "the file is JSON of this test")]
fn operator_with_webhooks(count: usize) -> Files {
    let webhooks = (0..count).map(|number| {
        json!({
            "type": "ValidatingAdmissionWebhook", "generateName": format!("w{number}"),
            "deploymentName": "d", "admissionReviewVersions": ["v1"],
        })
    });
    let webhooks: Value = webhooks.collect();
    let mut files = operator(&[json!({"name": "d", "spec": {"template": {}}})], &[]);
    let csv = files.get_mut("manifests/csv.json").unwrap();
    let mut parsed: Value = serde_json::from_slice(csv).unwrap();
    parsed["spec"]["webhookdefinitions"] = webhooks;
    *csv = parsed.to_string().into_bytes();
    files
}

/// Returns an operator with one deployment that has this number of containers.
fn operator_with_containers(count: usize) -> Files {
    let containers = (0..count).map(|number| json!({"name": format!("c{number}")}));
    let containers: Value = containers.collect();
    let spec = json!({"template": {"spec": {"containers": containers}}});
    operator(&[json!({"name": "d", "spec": spec})], &[])
}

fn rule(number: usize) -> Value {
    json!({"apiGroups": ["apps"], "resources": [format!("r{number}")], "verbs": ["get", "list"]})
}

/// Returns the memory that the webhook reserves for the files, in bytes; `None` if the files are
/// invalid.
fn weight(files: &Files) -> Option<usize> {
    let (mut parsed, mut documents) = (0, Weight::default());
    let mut allowance = Allowance::default();
    for (path, bytes) in files {
        let weight = yaml::weigh(bytes, path, &mut allowance).ok()?;
        parsed += bytes.len() as u64 + weight.tree.0 + weight.objects * PER_OBJECT;
        documents = documents.plus(weight);
    }
    let needed = format::rendering_memory(|path| files.contains_key(path), parsed, &documents);
    usize::try_from(needed).ok()
}

#[test]
fn rendering_an_operator_needs_no_more_than_its_weight() {
    let _alone = alone();
    let rules = |count| (0..count).map(rule).collect::<Vec<_>>();
    let permission =
        |number, rules| json!({"serviceAccountName": format!("a{number}"), "rules": rules});
    let permissions = |count, of_each| {
        let all = (0..count).map(|number| permission(number, rules(of_each)));
        all.collect::<Vec<_>>()
    };
    let deployments = (0..1_000)
        .map(|number| {
            let account = json!({"serviceAccountName": format!("b{number}")});
            json!({"name": format!("d{number}"), "spec": {"template": {"spec": account}}})
        })
        .collect::<Vec<_>>();
    let namespaces = |count| {
        let names = (0..count).map(|number| format!("n{number}"));
        json!({"watchNamespaces": names.collect::<Vec<_>>()})
    };
    let variables = |count| {
        let variables = (0..count).map(|number| json!({"name": format!("v{number}")}));
        json!({"deploymentConfig": {"env": variables.collect::<Vec<_>>()}})
    };
    for (name, files, config) in [
        (
            "one permission with many rules",
            operator(&[], &permissions(1, 2_000)),
            json!({}),
        ),
        (
            "many permissions",
            operator(&[], &permissions(500, 1)),
            json!({}),
        ),
        (
            "permissions without rules",
            operator(&[], &permissions(1_000, 0)),
            json!({}),
        ),
        ("many deployments", operator(&deployments, &[]), json!({})),
        ("many webhooks", operator_with_webhooks(1_000), json!({})),
        (
            "several namespaces",
            operator(&[], &permissions(2, 3)),
            namespaces(100),
        ),
        (
            "a large configuration",
            operator_with_containers(1),
            variables(1_000),
        ),
        (
            "a configuration for many containers",
            operator_with_containers(1_000),
            variables(3),
        ),
    ] {
        let limit = weight(&files).unwrap();
        let target = RenderTarget {
            config: Some(config),
            ..RenderTarget::default()
        };
        let input = RenderInput {
            files: &files,
            target: &target,
            output: CommandOutput::Missing,
        };
        let render =
            || format::render_objects(&input, |found, _| Ok(found), &Cancellation::default());
        let (peak, content) = peak(render);
        let objects = content.map_or(0, |content| content.objects.len());
        assert!(objects > 0, "{name}");
        // The weight includes the files and further memory of each object, which this test does not
        // allocate.
        let needed = peak + objects * usize::try_from(PER_OBJECT).unwrap();
        assert!(
            needed < limit,
            "{name}: {} of {} KiB for {objects} objects",
            needed >> 10,
            limit >> 10
        );
    }
}

#[test]
fn rendering_with_a_lock_or_a_chart_needs_no_more_than_its_weight() {
    let _alone = alone();
    let maps = |count| "{b: 0},".repeat(count);
    for (path, text) in [
        ("images.lock.yaml", format!("images: [{}]\n", maps(10_000))),
        ("Chart.yaml", format!("name: a\nx: [{}]\n", maps(5_000))),
    ] {
        let files = Files::from_iter([(path.to_owned(), text.into_bytes())]);
        let input = RenderInput {
            files: &files,
            target: &RenderTarget::default(),
            output: CommandOutput::Later,
        };
        let render =
            || format::render_objects(&input, |found, _| Ok(found), &Cancellation::default());
        let ((used, _), limit) = (peak(render), weight(&files).unwrap());
        // The parser may use a quarter of the weight for buffers. A second copy of the values would
        // need more memory.
        let (used, most) = (used >> 10, (limit + limit / 4) >> 10);
        assert!(used < most, "{path}: {used} of {most} KiB");
    }
}

/// Returns a Role with one rule.
fn role(name: &str, rule: &Value) -> Manifest {
    Manifest {
        id: ObjectId {
            group: "rbac.authorization.k8s.io".to_owned(),
            version: "v1".to_owned(),
            kind: "Role".to_owned(),
            namespace: Some("home".to_owned()),
            name: name.to_owned(),
        },
        value: json!({"rules": [rule]}),
        file: String::new(),
        line: 1,
    }
}

#[test]
fn permissions_of_roles_need_no_more_than_a_constant() {
    let _alone = alone();
    let texts = |count: usize, length: usize| -> Vec<String> {
        let numbers = 0..count;
        numbers.map(|number| format!("{number:0length$}")).collect()
    };
    let rule = |names: Vec<String>| {
        json!({
            "verbs": texts(100, 3), "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names,
        })
    };
    for (name, objects) in [
        (
            "a role with long names",
            vec![role("wide", &rule(texts(100, 10 << 10)))],
        ),
        (
            "many roles with many permissions",
            (0..100)
                .map(|number| role(&format!("r{number}"), &rule(texts(100, 5 + number))))
                .collect(),
        ),
    ] {
        let (used, required) = peak(|| rights::required(&objects));
        assert!(!required.rules.is_empty(), "{name}");
        assert!(used < PERMISSIONS, "{name}: {} KiB", used >> 10);
    }
}

#[test]
fn configurations_need_no_more_than_the_memory_that_is_counted_for_them() {
    let _alone = alone();
    let patterns = |pattern: &str| {
        let properties = (0..100).map(|n| (format!("p{n}"), json!({"pattern": pattern})));
        json!({"properties": properties.collect::<serde_json::Map<_, _>>()})
    };
    let texts = |length: usize| {
        let texts = (0..100).map(|n| (format!("p{n}"), json!("a1".repeat(length / 2))));
        Value::Object(texts.collect())
    };
    let branches: Vec<Value> = (0..6_000).map(|n| json!({"const": n})).collect();
    let maps = |count: usize| json!({"all": vec![json!({"": 0}); count]});
    for (name, schema, config) in [
        (
            "patterns with many states",
            patterns("^([a-f][0-9]|[g-z][0-9]?|[0-9]){12}$"),
            texts(600),
        ),
        ("unlimited texts", patterns("^[a-z0-9]*[0-9]$"), texts(600)),
        ("many branches", json!({"anyOf": branches}), maps(100)),
        ("many small maps", json!({}), maps(7_000)),
        (
            "many errors of many values",
            json!({"properties": {"all": {"items": {"allOf": vec![json!({"type": "string"}); 9_000]}}}}),
            json!({"all": vec![0; 30_000]}),
        ),
        (
            "errors of one alternative",
            json!({"anyOf": [{"properties": {"all": {"items": {"allOf": vec![json!({"type": "string"}); 900]}}}}]}),
            json!({"all": vec![0; 10_000]}),
        ),
        (
            "errors of alternatives of items",
            json!({"properties": {"all": {"items": {"anyOf": vec![json!({"type": "string"}); 65]}}}}),
            json!({"all": vec![0; 4_000]}),
        ),
        (
            "as many listed errors as possible",
            json!({"properties": {"all": {"items": {"allOf": vec![json!({"type": "string"}); 10]}}}}),
            json!({"all": vec![0; 1_000]}),
        ),
        (
            "as many errors",
            json!({"properties": {"all": {"items": {"type": "string"}}}}),
            maps(7_000),
        ),
    ] {
        let files = Files::from_iter([("schema.json".to_owned(), schema.to_string().into_bytes())]);
        let package = Config {
            schema: Some("schema.json".to_owned()),
            ..Config::default()
        };
        let mut allowance = Allowance::default();
        let resolve = || configuration::resolve(&package, &files, Some(&config), &mut allowance);
        let (peak, resolved) = peak(resolve);
        if let Err(findings) = resolved {
            let codes: Vec<_> = findings.errors().map(|finding| finding.code).collect();
            assert!(
                codes
                    .iter()
                    .all(|code| *code == codes::format::INVALID_CONFIGURATION),
                "{name}: {findings}"
            );
        }
        assert!(
            peak < usize::try_from(configuration::MEMORY).unwrap(),
            "{name}: {} KiB",
            peak >> 10
        );
    }
}

#[test]
fn values_of_a_chart_need_no_more_than_a_constant() {
    let _alone = alone();
    let chart = b"name: web\nversion: 1.0.0\n".to_vec();
    let files = Files::from_iter([("Chart.yaml".to_owned(), chart)]);
    let repeated = |text: &str, aliases: usize| {
        let aliases = "*a,".repeat(aliases);
        format!("a: &a \"{text}\"\nb: [{aliases}]\n")
    };
    let control = |count| "\\x01".repeat(count);
    for (name, values, is_valid) in [
        (
            "aliases of a text",
            repeated(&"a".repeat(1 << 10), 900),
            true,
        ),
        (
            "aliases of control characters",
            repeated(&control(1 << 10), 900),
            false,
        ),
        (
            "many aliases of control characters",
            repeated(&control(16 << 10), 1_000),
            false,
        ),
    ] {
        let target = RenderTarget {
            config: Some(json!({ "values": values })),
            ..RenderTarget::default()
        };
        let command = || format::command(&files, &target, &mut Allowance::default());
        let (peak, command) = peak(command);
        assert_eq!(command.is_ok(), is_valid, "{name}");
        assert!(peak < CONSTANT, "{name}: {} KiB", peak >> 10);
    }
}

#[test]
fn finding_the_files_of_a_configuration_needs_no_more_than_a_constant() {
    let _alone = alone();
    let list = |item: &str, count| format!("name: web\nkeywords: [{}]\n", item.repeat(count));
    for (name, package) in [
        ("many maps", list("{a: 0},", 150_000)),
        ("many lists", list("[0],", 200_000)),
        ("many documents", "0\n---\n".repeat(150_000)),
    ] {
        let (peak, _) = peak(|| ReadFiles::new(Some(package.as_bytes())));
        assert!(peak < CONSTANT, "{name}: {} KiB", peak >> 10);
    }
}

#[test]
fn json_of_control_characters_is_measured_and_hashed_without_its_text() {
    let _alone = alone();
    let characters = 1 << 20;
    let value = json!({"a": "\u{7}".repeat(characters)});
    let measure = || {
        let request = RequestHash::of(&value, None, "installer");
        (json::length(&value), json::digest(&value), request)
    };
    let (used, (length, digest, request)) = peak(measure);
    assert!(used < 64 << 10, "{} KiB", used >> 10);
    assert_eq!(length, 6 * characters + r#"{"a":""}"#.len());
    let other = json!({"a": "\u{7}".repeat(characters + 1)});
    assert_ne!(json::digest(&other), digest);
    assert_ne!(RequestHash::of(&other, None, "installer"), request);
}
