//! Import cycles: sibling modules that import each other, directly or through other modules. An
//! import of a parent or a child is no cycle.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;

/// A cycle of sibling modules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ImportCycle {
    /// Path of the parent in its crate. The root has an empty path.
    pub(super) parent: String,
    /// Names of the modules.
    pub(super) modules: BTreeSet<String>,
    /// An example of an import for each pair of modules.
    pub(super) imports: Vec<String>,
}

/// Returns all import cycles of a crate.
pub(super) fn find(tree: &Tree) -> Vec<ImportCycle> {
    // Imports between the children of each parent: the two children, with an example of an import.
    let mut graphs: BTreeMap<usize, BTreeMap<(usize, usize), String>> = BTreeMap::new();
    for (from, module) in tree.modules.iter().enumerate() {
        for path in &module.paths {
            let Some(to) = tree.resolve(from, path) else {
                continue;
            };
            if let Some((parent, edge)) = siblings(tree, from, to) {
                graphs
                    .entry(parent)
                    .or_default()
                    .entry(edge)
                    .or_insert_with(|| {
                        format!("{} uses {}", module.file.display(), path.join("::"))
                    });
            }
        }
    }
    graphs
        .into_iter()
        .flat_map(|(parent, edges)| cycles(tree, parent, &edges))
        .collect()
}

/// Returns the innermost common parent of both modules, and the children of this parent that
/// contain the modules. Returns `None` if one module contains the other.
fn siblings(tree: &Tree, from: usize, to: usize) -> Option<(usize, (usize, usize))> {
    let mut from: Vec<usize> = tree.lineage(from).collect();
    let mut to: Vec<usize> = tree.lineage(to).collect();
    let mut parent = None;
    while let (Some(&one), Some(&other)) = (from.last(), to.last()) {
        if one != other {
            return parent.map(|parent| (parent, (one, other)));
        }
        parent = from.pop();
        to.pop();
    }
    None
}

/// Returns the groups of modules that import each other, directly or through other modules.
fn cycles(
    tree: &Tree,
    parent: usize,
    edges: &BTreeMap<(usize, usize), String>,
) -> Vec<ImportCycle> {
    let nodes: BTreeSet<usize> = edges.keys().flat_map(|&(from, to)| [from, to]).collect();
    let reached: BTreeMap<usize, BTreeSet<usize>> = nodes
        .iter()
        .map(|&node| (node, reachable(node, edges)))
        .collect();
    let groups: BTreeSet<BTreeSet<usize>> = nodes
        .iter()
        .filter(|node| reached[node].contains(node))
        .map(|node| {
            reached[node]
                .iter()
                .copied()
                .filter(|other| reached[other].contains(node))
                .collect()
        })
        .collect();
    groups
        .into_iter()
        .map(|group| ImportCycle {
            parent: tree.path(parent),
            modules: group
                .iter()
                .map(|&id| tree.modules[id].name.clone())
                .collect(),
            imports: edges
                .iter()
                .filter(|((from, to), _)| group.contains(from) && group.contains(to))
                .map(|((from, to), proof)| {
                    format!(
                        "{} → {}: {proof}",
                        tree.modules[*from].name, tree.modules[*to].name
                    )
                })
                .collect(),
        })
        .collect()
}

fn reachable(start: usize, edges: &BTreeMap<(usize, usize), String>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut next = vec![start];
    while let Some(node) = next.pop() {
        for &(_, to) in edges.keys().filter(|(from, _)| *from == node) {
            if found.insert(to) {
                next.push(to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        find(&Tree::inline(source))
            .into_iter()
            .map(|cycle| {
                let modules: Vec<_> = cycle.modules.into_iter().collect();
                format!("{}: {}", cycle.parent, modules.join(" "))
            })
            .collect()
    }

    #[test]
    fn two_modules_that_import_each_other_are_a_cycle() {
        assert_eq!(
            found(
                "mod a { use crate::b::T; } mod b { use super::a::U; } mod c { use crate::a::U; }"
            ),
            [": a b"]
        );
    }

    #[test]
    fn cycle_through_the_files_of_folders_is_found_at_the_folders() {
        assert_eq!(
            found(
                "mod p { mod a { mod x { use crate::p::b::T; } mod y { } } mod b { mod z { use super::super::a::y::T; } } }"
            ),
            ["p: a b"]
        );
    }

    #[test]
    fn cycle_of_three_is_found() {
        assert_eq!(
            found(
                "mod a { use crate::b::T; } mod b { use crate::c::U; } mod c { fn f() { crate::a::g() } }"
            ),
            [": a b c"]
        );
    }

    #[test]
    fn cycle_through_a_reexport_of_the_parent_is_found() {
        assert_eq!(
            found("mod a { use super::T; } mod b { use super::a::U; } use b::T;"),
            [": a b"]
        );
    }

    #[test]
    fn imports_between_parent_and_child_are_no_cycle() {
        assert!(
            found("mod a { use self::b::T; pub struct U; mod b { use super::U; } }").is_empty()
        );
    }

    #[test]
    fn imports_of_tests_are_none() {
        assert!(
            found(
                "mod a { use crate::b::T; } mod b { #[cfg(test)] mod tests { use crate::a::U; } }"
            )
            .is_empty()
        );
    }
}
