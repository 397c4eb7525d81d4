use std::collections::BTreeSet;

use bundle_core::format::{self, Files, RenderTarget};

use super::super::tests::packed;
use super::*;

const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.4.0\n";
const DEPENDENCY: &str = "apiVersion: v2\nname: db\nversion: 1.0.0\n";

/// Writes the files of a bundle. Returns the content of the files on disk.
fn written(files: &Files) -> Result<Files, String> {
    let target = RenderTarget::default();
    let command = format::command(files, &target, &mut Allowance::default());
    let command = command.unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<String> = files.keys().cloned().collect();
    let read = |path: &str| Ok(files[path].clone());
    let written = write(&command, folder.path(), &paths, read).unwrap();
    let written = written.map_err(|findings| findings.to_string())?;
    let limits = Limits::default();
    Ok(crate::folder::read(&written.content, &limits).unwrap())
}

fn files(list: &[(&str, &[u8])]) -> Files {
    let list = list.iter();
    list.map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()))
        .collect()
}

#[test]
fn packed_dependencies_are_unpacked_and_checked() {
    // A library chart cannot be installed, but can be a dependency.
    let inner = packed(&[
        ("x/Chart.yaml", b"apiVersion: v2\nname: x\ntype: library\n"),
        ("x/templates/a.yaml", b"a: {{ now }}\n"),
    ]);
    let dependency = packed(&[
        ("db/Chart.yaml", DEPENDENCY.as_bytes()),
        ("db/charts/x-1.0.0.tgz", &inner),
    ]);
    let content = files(&[
        ("Chart.yaml", CHART.as_bytes()),
        (".helmignore", b"*.bak\n"),
        ("a.bak", b""),
        ("charts/db-1.0.0.tgz", &dependency),
    ]);
    let written = written(&content).unwrap();
    let paths: Vec<&str> = written.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "Chart.yaml",
            "charts/db-1.0.0/Chart.yaml",
            "charts/db-1.0.0/charts/x-1.0.0/Chart.yaml",
            "charts/db-1.0.0/charts/x-1.0.0/templates/a.yaml",
        ]
    );
    let template = &written["charts/db-1.0.0/charts/x-1.0.0/templates/a.yaml"];
    assert_eq!(template, b"a: {{ fail }}\n");
}

#[test]
fn schemas_are_written_without_the_identifiers_at_their_root() {
    let schema = br##"{"$id": "http://10.0.0.5/x?", "$ref": "#"}"##;
    let dependency = packed(&[
        ("db/Chart.yaml", DEPENDENCY.as_bytes()),
        ("db/values.schema.json", schema),
    ]);
    let content = files(&[
        ("Chart.yaml", CHART.as_bytes()),
        ("values.schema.json", schema),
        ("files/values.schema.json", schema),
        ("charts/db-1.0.0.tgz", &dependency),
    ]);
    let written = written(&content).unwrap();
    for folder in ["", "charts/db-1.0.0/"] {
        let path = format!("{folder}values.schema.json");
        assert_eq!(written[&path], br##"{ "$ref": "#"}"##, "{path}");
    }
    assert_eq!(written["files/values.schema.json"], schema);
}

#[test]
fn invalid_packed_dependencies_are_rejected() {
    let large = packed(&[("db/Chart.yaml", &vec![b' '; 25 << 20])]);
    let escaping = packed(&[("db/Chart.yaml", DEPENDENCY.as_bytes()), ("../a", b"")]);
    let other = packed(&[("db/values.yaml", b"")]);
    for (dependency, expected) in [
        (&large[..], "is larger than the limit of"),
        (&escaping, "../a"),
        (&other, "Chart.yaml file is missing"),
        (b"no gzip", "is not a packed chart"),
    ] {
        let content = files(&[
            ("Chart.yaml", CHART.as_bytes()),
            ("charts/db-1.0.0.tgz", dependency),
        ]);
        let found = written(&content).unwrap_err();
        assert!(found.contains("charts/db-1.0.0.tgz: "), "{found}");
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn file_that_a_folder_and_a_packed_dependency_have_is_rejected() {
    let dependency = packed(&[("db/Chart.yaml", DEPENDENCY.as_bytes())]);
    let content = files(&[
        ("Chart.yaml", CHART.as_bytes()),
        ("charts/db-1.0.0.tgz", &dependency),
        ("charts/db-1.0.0/values.yaml", b""),
        ("charts/db-1.0.0/Chart.yaml", b"name: other\n"),
    ]);
    let found = written(&content).unwrap_err();
    assert!(found.contains("has this file twice"), "{found}");
}

#[test]
fn two_charts_with_one_name_are_rejected() {
    let dependency = packed(&[("db/Chart.yaml", DEPENDENCY.as_bytes())]);
    for (path, text, is_accepted) in [
        ("charts/other/Chart.yaml", DEPENDENCY.as_bytes(), false),
        ("charts/db-2.0.0.tgz", &dependency[..], false),
        ("charts/other/Chart.yaml", b"name: other\n", true),
        ("charts/db-1.0.0.bak/charts/x/Chart.yaml", b"name: db", true),
    ] {
        let content = files(&[
            ("Chart.yaml", CHART.as_bytes()),
            ("charts/db-1.0.0.tgz", &dependency),
            (path, text),
        ]);
        match written(&content) {
            Ok(_) => assert!(is_accepted, "{path}"),
            Err(found) => {
                assert!(!is_accepted, "{found}");
                let expected = "charts/ has two charts with the name `db`";
                assert!(found.contains(expected), "{found}");
            }
        }
    }
}

#[test]
fn dependencies_share_a_limit_of_nodes() {
    // YAML aliases: the 200 bytes of the file contain 12,000 nodes.
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    let expanded = |name: &str| {
        let inner = list("0", 10);
        let outer = list("*a", 10);
        format!(
            "name: {name}\na: &a {inner}\nb: &b {outer}\nc: {}\n",
            list("*b", 100)
        )
    };
    let with = |count: usize| {
        let mut content = files(&[("Chart.yaml", CHART.as_bytes())]);
        for index in 0..count {
            let text = expanded(&format!("d{index}"));
            content.insert(format!("charts/d{index}/Chart.yaml"), text.into_bytes());
        }
        content
    };
    written(&with(3)).unwrap();
    let found = written(&with(10)).unwrap_err();
    assert!(found.contains("charts/d4/Chart.yaml"), "{found}");
    let maps = list("{a: 0}", 40_000);
    let large = packed(&[("db/Chart.yaml", format!("name: db\na: {maps}\n").as_bytes())]);
    let content = files(&[
        ("Chart.yaml", CHART.as_bytes()),
        ("charts/db-1.0.0.tgz", &large),
    ]);
    written(&content).unwrap_err();
}

#[test]
fn dependencies_that_need_much_memory_are_rejected() {
    let (long, aliases) = ("x".repeat(51_200), "*a,".repeat(405));
    let document = format!("a: &a {long}\nb: [{aliases}]\n");
    let text = format!("name: db\n{document}---\n{document}");
    let archive = packed(&[("db/Chart.yaml", text.as_bytes())]);
    for (path, bytes) in [
        ("charts/db/Chart.yaml", text.as_bytes()),
        ("charts/db-1.0.0.tgz", &archive[..]),
    ] {
        let content = files(&[("Chart.yaml", CHART.as_bytes()), (path, bytes)]);
        let found = written(&content).unwrap_err();
        assert!(found.contains("more than 4 MiB of memory"), "{found}");
    }
}

#[test]
fn names_and_folders_that_no_disk_has_are_rejected() {
    let long = format!("files/{}", "a".repeat(300));
    let deep = format!("{}a", "a/".repeat(DEPTH + 1));
    for (path, expected) in [
        (long.as_str(), "the name of the file is too long"),
        ("files/a/b", "has this file twice"),
        (deep.as_str(), "more than 32 levels of folders"),
    ] {
        let content = files(&[
            ("Chart.yaml", CHART.as_bytes()),
            ("files/a", b""),
            (path, b""),
        ]);
        let found = written(&content).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }
    let many: Vec<String> = (0..4_900)
        .map(|index| format!("files/{index}/{index}/a"))
        .collect();
    let mut content = files(&[("Chart.yaml", CHART.as_bytes())]);
    content.extend(many.into_iter().map(|path| (path, Vec::new())));
    let found = written(&content).unwrap_err();
    assert!(found.contains("more than 24 MiB"), "{found}");
}

#[test]
fn archives_of_packed_dependencies_count_with_their_size() {
    let large = vec![b'a'; 7 << 20];
    let packed = packed(&[("db/Chart.yaml", DEPENDENCY.as_bytes()), ("other", &large)]);
    let names = ["a", "b", "c", "d"].map(|name| format!("charts/{name}.tgz"));
    let mut content = files(&[("Chart.yaml", CHART.as_bytes())]);
    content.extend(names.map(|name| (name, packed.clone())));
    assert!(written(&content).is_err());
}

#[test]
fn groups_that_dependencies_and_values_name_are_found() {
    let dependency = packed(&[
        ("db/Chart.yaml", DEPENDENCY.as_bytes()),
        ("db/templates/a.yaml", b"apiVersion: z1.example.com/v1\n"),
    ]);
    let content = files(&[
        ("Chart.yaml", CHART.as_bytes()),
        ("charts/db-1.0.0.tgz", &dependency),
        (".helmignore", b"*.bak\n"),
        ("a.bak", b"z3.example.com"),
    ]);
    let target = RenderTarget {
        config: Some(serde_json::json!({"group": "z2.example.com"})),
        ..RenderTarget::default()
    };
    let command = format::command(&content, &target, &mut Allowance::default());
    let command = command.unwrap().unwrap();
    let more_than_the_limit = (0..2_000).map(|number| format!("a{number}.example.com/v1"));
    let named = ["z1", "z2", "z3"].map(|name| format!("{name}.example.com/v1"));
    let list = more_than_the_limit.chain(named.clone()).collect();
    let mut served = ServedApis::new(list, BTreeSet::new());
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<String> = content.keys().cloned().collect();
    let read = |path: &str| Ok(content[path].clone());
    let running = Cancellation::default();
    let written = write_until(&command, folder.path(), &paths, &running, &mut served, read);
    written.unwrap().unwrap();
    let selected = served.selected();
    let is_passed = named.map(|api| selected.passed.contains(&api.as_str()));
    assert_eq!(is_passed, [true, true, false]);
}

#[test]
fn cancelled_work_ends() {
    let content = files(&[("Chart.yaml", CHART.as_bytes())]);
    let target = RenderTarget::default();
    let command = format::command(&content, &target, &mut Allowance::default());
    let command = command.unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cancellation = Cancellation::default();
    cancellation.cancel();
    let paths = ["Chart.yaml".to_owned()];
    let read = |path: &str| Ok(content[path].clone());
    let mut served = ServedApis::default();
    let found = write_until(
        &command,
        folder.path(),
        &paths,
        &cancellation,
        &mut served,
        read,
    );
    assert!(found.unwrap_err().to_string().contains("cancelled"));
}
