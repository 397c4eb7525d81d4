//! Memory estimate for the parsed documents of a file, without storing them.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Allowance, Document, allowance::NodeCount, keys, limits, problem, split, tree};
use crate::{diagnostic::Finding, footprint::Footprint};

/// Memory of one parsed document without its values, in bytes. While the list of documents grows,
/// its old and its new allocation exist together.
const PER_DOCUMENT: u64 = 3 * size_of::<Document>() as u64;

/// Estimated memory of the parsed documents of a file (weight), and the numbers of their objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// Memory of the parsed documents.
    pub tree: Footprint,
    /// Number of objects: documents, and the items of documents that are lists of objects.
    pub objects: u64,
    /// Number of list items from which the rendering of a registry+v1 bundle creates objects. The
    /// names of the lists identify these items.
    pub operator_entries: u64,
}

impl Weight {
    /// Returns the memory of the list that [`documents`](super::documents) returns, in bytes. A
    /// document without lists, maps and text adds nothing to `tree`.
    pub fn documents_memory(&self) -> u64 {
        let documents = self.objects.saturating_mul(PER_DOCUMENT);
        self.tree.0.saturating_add(documents)
    }

    /// Returns the sum of both weights.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let Self {
            tree,
            objects,
            operator_entries,
        } = self;
        Self {
            tree: tree.plus(other.tree),
            objects: objects.saturating_add(other.objects),
            operator_entries: operator_entries.saturating_add(other.operator_entries),
        }
    }
}

/// Estimates the memory of a file's documents, within the limits of
/// [`documents`](super::documents). Returns the error that parsing would return, except for invalid
/// keys. Files that are parsed together must use the same `allowance`.
pub fn weigh(text: &[u8], file: &str, allowance: &mut Allowance) -> Result<Weight, Finding> {
    let text = limits::text(text, file)?;
    let mut weight = Weight::default();
    for part in split::parts(text) {
        if part.content_line().is_none() {
            continue;
        }
        allowance.begin_document()?;
        keys::check(part, file, allowance)?;
        let nodes = NodeCount::new(allowance);
        let operator_entries = Cell::new(weight.operator_entries);
        let counter = Counter {
            nodes: &nodes,
            operator_entries: &operator_entries,
            role: Role::Object,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the only YAML parser of the project"
        )]
        let document = serde_saphyr::with_deserializer_from_str_with_options(
            part.text,
            limits::options(part.text),
            |deserializer| counter.deserialize(deserializer),
        );
        allowance.nodes = nodes.left();
        weight.operator_entries = operator_entries.get();
        let document = document.map_err(|error| problem::finding(&error, part.line, file))?;
        weight.tree = weight.tree.plus(document.tree);
        weight.objects = weight.objects.saturating_add(document.objects);
    }
    Ok(weight)
}

/// Role of a value in its document.
#[derive(Clone, Copy)]
enum Role {
    /// Object, or list of objects.
    Object,
    /// Items of an object that can be a list of objects.
    Items,
    /// List in a ClusterServiceVersion. The rendering creates objects from its items.
    OperatorEntries,
    /// A key, or a value within an object.
    Value,
}

/// Text that decides whether an object is a list of objects, or whether a list belongs to an
/// operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Kind,
    Items,
    ListKind,
    OperatorEntries,
    Other,
}

/// Estimate for one value.
struct Counted {
    tree: Footprint,
    /// Number of objects; zero for a value in an object.
    objects: u64,
    word: Word,
}

impl Counted {
    fn new(tree: Footprint, objects: u64) -> Self {
        Self {
            tree,
            objects,
            word: Word::Other,
        }
    }
}

#[derive(Clone, Copy)]
struct Counter<'a> {
    nodes: &'a NodeCount<'a>,
    operator_entries: &'a Cell<u64>,
    role: Role,
}

impl Counter<'_> {
    fn with(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Returns the estimate of a value that is neither list nor map.
    fn scalar(self) -> Counted {
        Counted::new(Footprint(0), u64::from(matches!(self.role, Role::Object)))
    }
}

impl<'de> DeserializeSeed<'de> for Counter<'_> {
    type Value = Counted;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Counted, D::Error> {
        self.nodes.add()?;
        stacker::maybe_grow(tree::RED_ZONE, tree::STACK, || {
            deserializer.deserialize_any(self)
        })
    }
}

impl<'de> Visitor<'de> for Counter<'_> {
    type Value = Counted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Counted, E> {
        Ok(self.scalar())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Counted, E> {
        Ok(self.scalar())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Counted, E> {
        Ok(self.scalar())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Counted, E> {
        Ok(self.scalar())
    }

    fn visit_unit<E>(self) -> Result<Counted, E> {
        Ok(self.scalar())
    }

    fn visit_none<E>(self) -> Result<Counted, E> {
        Ok(self.scalar())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Counted, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_str<E>(self, text: &str) -> Result<Counted, E> {
        let word = match text {
            "kind" => Word::Kind,
            "items" => Word::Items,
            "deployments" | "permissions" | "clusterPermissions" | "webhookdefinitions" => {
                Word::OperatorEntries
            }
            text if text.ends_with("List") => Word::ListKind,
            _ => Word::Other,
        };
        Ok(Counted {
            tree: Footprint::of_text(text.len()),
            word,
            ..self.scalar()
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Counted, A::Error> {
        let item = match self.role {
            Role::Items => self.with(Role::Object),
            Role::Object | Role::OperatorEntries | Role::Value => self.with(Role::Value),
        };
        let (mut count, mut all) = (0, self.scalar());
        while let Some(item) = items.next_element_seed(item)? {
            all.tree = all.tree.plus(item.tree);
            all.objects = all.objects.saturating_add(item.objects);
            count += 1;
        }
        all.tree = all.tree.plus(Footprint::of_list(count));
        if matches!(self.role, Role::OperatorEntries) {
            let entries = self.operator_entries.get().saturating_add(count);
            self.operator_entries.set(entries);
        }
        Ok(all)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Counted, A::Error> {
        let is_object = matches!(self.role, Role::Object);
        let (mut count, mut tree) = (0, Footprint(0));
        let (mut is_list, mut items) = (false, 0);
        while let Some(key) = entries.next_key_seed(self.with(Role::Value))? {
            let role = match key.word {
                Word::Items if is_object => Role::Items,
                Word::OperatorEntries => Role::OperatorEntries,
                _ => Role::Value,
            };
            let value = entries.next_value_seed(self.with(role))?;
            tree = tree.plus(key.tree).plus(value.tree);
            items += value.objects;
            is_list |= key.word == Word::Kind && value.word == Word::ListKind;
            count += 1;
        }
        let objects = match (is_object, is_list) {
            (true, true) => items.max(1),
            (true, false) => 1,
            (false, _) => 0,
        };
        Ok(Counted::new(tree.plus(Footprint::of_map(count)), objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::codes;

    fn weigh(text: &[u8], file: &str) -> Result<Weight, Finding> {
        super::weigh(text, file, &mut Allowance::default())
    }

    #[test]
    fn estimate_includes_expanded_anchors() {
        let plain = weigh(b"a: [1, 2]\n---\n# nothing\n---\nb: text\n", "f.yaml").unwrap();
        assert_eq!(plain.objects, 2);
        let short = weigh(b"a: &a [x, x, x, x]\n", "f.yaml").unwrap();
        let unfolded = weigh(b"a: &a [x, x, x, x]\nb: *a\nc: *a\nd: *a\n", "f.yaml").unwrap();
        assert!(unfolded.tree.0 > short.tree.0 + 3 * 4 * 32, "{unfolded:?}");
    }

    #[test]
    fn reports_parse_errors_with_line() {
        let finding = weigh(b"a: 1\n---\nkind: [\n", "f.yaml").unwrap_err();
        assert!(finding.to_string().starts_with("f.yaml:3: "), "{finding}");
    }

    #[test]
    fn items_of_lists_count_as_objects() {
        for (text, objects) in [
            (
                "{kind: List, apiVersion: v1, items: [{kind: A}, {kind: B}, {}]}",
                3,
            ),
            ("{items: [{}, {}], kind: ConfigMapList}", 2),
            (
                "{kind: List, items: [{kind: List, items: [{}, {}, {}]}, {kind: B}]}",
                4,
            ),
            ("{kind: List, items: []}", 1),
            ("{kind: List, items: {a: b}}", 1),
            ("{kind: Menu, items: [{}, {}]}", 1),
            ("{kind: A, spec: {kind: List, items: [{}, {}]}}", 1),
            ("text", 1),
            ("[1, 2]", 1),
        ] {
            let weight = weigh(text.as_bytes(), "f.yaml").unwrap();
            assert_eq!(weight.objects, objects, "{text}");
        }
    }

    #[test]
    fn aliases_of_all_documents_and_files_draw_from_one_allowance() {
        let text = format!(
            "a: &a [{}]\nb: [{}]\n---\n",
            "x,".repeat(50),
            "*a,".repeat(80)
        );
        let mut allowance = Allowance {
            nodes: 10_000,
            ..Allowance::default()
        };
        super::weigh(text.as_bytes(), "f.yaml", &mut allowance).unwrap();
        let finding = super::weigh(text.repeat(2).as_bytes(), "g.yaml", &mut allowance);
        assert_eq!(finding.unwrap_err().code, codes::format::TOO_COMPLEX);
    }
}
