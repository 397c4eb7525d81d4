//! YAML documents: the memory for weighing and parsing them.

use bundle_core::diagnostic::codes;
use bundle_core::yaml::{self, Allowance};

use super::{CONSTANT, alone, peak};

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
