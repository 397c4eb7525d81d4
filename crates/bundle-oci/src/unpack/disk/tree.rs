//! The paths of the folder that is being written. All decisions use this tree in memory. The disk
//! is never used for decisions.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::super::UnpackError;
use super::super::entry::refused;
use crate::limits::format_size;

/// Maximum number of symbolic links that are followed to check one link. [`STEPS`] is the maximum
/// number of path components that are visited.
const MAX_LINKS: usize = 40;
const STEPS: usize = 4096;
/// Maximum total length of the paths and targets that are visited to check all links of an image,
/// in bytes. An image with 300,000 links has 3.5 KiB for each link.
const LINK_PATHS: u64 = 1 << 30;

/// Remaining length of the paths and targets that are visited to check all links of an image, in
/// bytes. Each check subtracts the bytes that it reads, so the budget limits the time of all
/// checks.
#[derive(Debug)]
pub(super) struct LinkBudget(u64);

impl Default for LinkBudget {
    fn default() -> Self {
        Self(LINK_PATHS)
    }
}

impl LinkBudget {
    fn charge(&mut self, path: &str) -> Result<(), UnpackError> {
        let left = self.0.checked_sub(path.len() as u64);
        self.0 = left.ok_or_else(|| UnpackError::TooLarge {
            what: "the length of all paths to which the symbolic links lead".to_owned(),
            limit: format_size(LINK_PATHS),
        })?;
        Ok(())
    }
}

/// Entry of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TreeNode {
    Folder,
    File,
    /// A symbolic link with its original target. Links are created last, so that no file is written
    /// through a link.
    Link(String),
    /// A skipped entry.
    Skipped,
}

#[derive(Debug)]
struct PlacedNode {
    node: TreeNode,
    layer: usize,
}

/// Content of the folder: the paths of all layers that were unpacked so far, each with the number
/// of its layer.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<String, PlacedNode>,
    emptied: EmptiedPaths,
    /// Number of nodes that [`Tree::remove`] has visited.
    #[cfg(test)]
    visits: usize,
}

/// Folders from which the current layer has already removed the entries of lower layers, and in
/// which only entries of the current layer remain. A further whiteout of the current layer for such
/// a folder has no effect.
#[derive(Debug, Default)]
struct EmptiedPaths {
    layer: usize,
    paths: HashSet<String>,
}

impl Tree {
    pub(super) fn get(&self, path: &str) -> Option<&TreeNode> {
        self.nodes.get(path).map(|placed| &placed.node)
    }

    pub(super) fn put(&mut self, path: &str, node: TreeNode, layer: usize) {
        self.nodes
            .insert(path.to_owned(), PlacedNode { node, layer });
    }

    /// Returns the missing parent folders of `path`, highest first. Returns an error if a parent is
    /// not a folder.
    pub(super) fn missing_folders(&self, path: &str) -> Result<Vec<String>, UnpackError> {
        let mut missing = Vec::new();
        for (end, _) in path.rmatch_indices('/') {
            let folder = &path[..end];
            match self.get(folder) {
                // The tree contains all parents of each entry, so no higher folder is missing.
                Some(TreeNode::Folder) => break,
                None => missing.push(folder.to_owned()),
                Some(other) => {
                    let what = match other {
                        TreeNode::Link(_) => "a symbolic link",
                        _ => "not a folder",
                    };
                    return Err(refused(
                        path,
                        format!("is inside `{folder}`, which is {what}"),
                    ));
                }
            }
        }
        missing.reverse();
        Ok(missing)
    }

    /// Removes the entries of lower layers at `path`, so that `layer` can add an entry there.
    /// Returns the removed entries, deepest first. The caller removes them from disk. Returns an
    /// error if `layer` already has an entry at `path`.
    pub(super) fn clear(
        &mut self,
        path: &str,
        layer: usize,
    ) -> Result<Vec<(String, TreeNode)>, UnpackError> {
        let own = self
            .below(path)
            .chain(self.nodes.get_key_value(path))
            .any(|(_, placed)| placed.layer == layer);
        if own {
            return Err(refused(path, "appears twice"));
        }
        Ok(self.remove(path, false, layer))
    }

    /// Removes and returns the entries of lower layers at and below `path`. If `below` is `true`,
    /// the entry at `path` itself is kept. A folder is kept if `layer` has an entry in it. For each
    /// layer, the entries below a path are visited only once, because an image can repeat a
    /// whiteout any number of times.
    pub(super) fn remove(
        &mut self,
        path: &str,
        below: bool,
        layer: usize,
    ) -> Vec<(String, TreeNode)> {
        if self.emptied.layer != layer {
            self.emptied = EmptiedPaths {
                layer,
                ..EmptiedPaths::default()
            };
        }
        if self.emptied.paths.contains(path) {
            return Vec::new();
        }
        #[cfg(test)]
        {
            self.visits += self.below(path).count();
        }
        let mut paths: Vec<String> = self
            .below(path)
            .filter(|(_, placed)| placed.layer < layer)
            .map(|(path, _)| path.clone())
            .collect();
        paths.reverse();
        let own = self.nodes.get(path).filter(|own| own.layer < layer);
        if !below && own.is_some() {
            paths.push(path.to_owned());
        }
        let removed = paths.into_iter().filter_map(|path| {
            if self.below(&path).next().is_some() {
                return None;
            }
            let gone = self.nodes.remove(&path)?;
            Some((path, gone.node))
        });
        let removed = removed.collect();
        if self.below(path).next().is_some() {
            self.emptied.paths.insert(path.to_owned());
        }
        removed
    }

    fn below(&self, path: &str) -> impl Iterator<Item = (&String, &PlacedNode)> {
        let prefix = if path.is_empty() {
            String::new()
        } else {
            format!("{path}/")
        };
        self.nodes
            .range(prefix.clone()..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
    }

    /// Returns the symbolic links, sorted by path.
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &str)> {
        self.nodes
            .iter()
            .filter_map(|(path, placed)| match &placed.node {
                TreeNode::Link(target) => Some((path.as_str(), target.as_str())),
                _ => None,
            })
    }

    /// Returns `true` if the symbolic link at `path` does not lead out of the folder, even through
    /// other links. If the target does not exist, only its path is checked. Returns an error if all
    /// checks together exceed `budget`.
    pub(super) fn stays_inside(
        &self,
        path: &str,
        target: &str,
        budget: &mut LinkBudget,
    ) -> Result<bool, UnpackError> {
        budget.charge(target)?;
        let mut at = parent(path).to_owned();
        if target.starts_with('/') {
            at.clear();
        }
        let mut left: VecDeque<&str> = target.split('/').collect();
        let (mut hops, mut steps) = (0, 0);
        while let Some(component) = left.pop_front() {
            steps += 1;
            if steps > STEPS {
                return Ok(false);
            }
            match component {
                "" | "." => continue,
                ".." => {
                    budget.charge(&at)?;
                    // `..` is resolved only in folders of the tree. On a case-insensitive disk, a
                    // name that is not in the tree may refer to a link.
                    if at.is_empty() || self.get(&at) != Some(&TreeNode::Folder) {
                        return Ok(false);
                    }
                    at.truncate(parent(&at).len());
                    continue;
                }
                name if at.is_empty() => at.push_str(name),
                name => {
                    at.push('/');
                    at.push_str(name);
                }
            }
            budget.charge(&at)?;
            if let Some(TreeNode::Link(further)) = self.get(&at) {
                hops += 1;
                if hops > MAX_LINKS {
                    return Ok(false);
                }
                budget.charge(further)?;
                at.truncate(parent(&at).len());
                if further.starts_with('/') {
                    at.clear();
                }
                for component in further.split('/').rev() {
                    left.push_front(component);
                }
            }
        }
        Ok(true)
    }
}

/// Returns the path of the folder that contains `path`. The root has the empty path.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns the target to write to disk for the link at `path`. An absolute target refers to the
/// root of the image, and is converted to a relative target below the target folder.
pub(super) fn relative(path: &str, target: &str) -> String {
    let Some(from_root) = target.strip_prefix('/') else {
        return target.to_owned();
    };
    let up = "../".repeat(path.matches('/').count());
    let made = format!("{up}{}", from_root.trim_start_matches('/'));
    match made.trim_end_matches('/') {
        "" => ".".to_owned(),
        made => made.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_whiteouts_of_a_layer_visit_its_entries_once() {
        const ENTRIES: usize = 10_000;
        let mut tree = Tree::default();
        tree.put("a", TreeNode::Folder, 0);
        tree.put("a/lower", TreeNode::File, 0);
        for number in 0..ENTRIES {
            tree.put(&format!("a/{number}"), TreeNode::File, 1);
        }
        let lower = ("a/lower".to_owned(), TreeNode::File);
        assert_eq!(tree.remove("a", true, 1), [lower]);
        for _ in 0..ENTRIES {
            assert!(tree.remove("a", true, 1).is_empty());
            assert!(tree.remove("a", false, 1).is_empty());
        }
        assert_eq!(tree.visits, ENTRIES + 1);
        // For the next layer, these entries belong to a lower layer.
        assert_eq!(tree.remove("a", false, 2).len(), ENTRIES + 1);
        assert_eq!(tree.get("a"), None);
    }

    #[test]
    fn missing_folders_are_found_below_the_deepest_existing_folder() {
        let mut tree = Tree::default();
        assert_eq!(tree.missing_folders("a/b/c").unwrap(), ["a", "a/b"]);
        tree.put("a", TreeNode::Folder, 0);
        assert_eq!(tree.missing_folders("a/b/c/d").unwrap(), ["a/b", "a/b/c"]);
        tree.put("a/l", TreeNode::Link("..".to_owned()), 0);
        assert!(tree.missing_folders("a/l/c/d").is_err());
    }

    #[test]
    fn checks_of_all_links_share_one_budget() {
        let mut tree = Tree::default();
        tree.put("a", TreeNode::Folder, 0);
        tree.put("a/b", TreeNode::Folder, 0);
        // Each check visits the target `b/c` and the paths `a/b` and `a/b/c`: 11 bytes.
        let mut budget = LinkBudget(5 * 11 + 10);
        for _ in 0..5 {
            assert_eq!(tree.stays_inside("a/l", "b/c", &mut budget), Ok(true));
        }
        let error = tree.stays_inside("a/l", "b/c", &mut budget).unwrap_err();
        assert!(error.to_string().contains("symbolic links"), "{error}");
        // The target of each further link counts too.
        tree.put("l", TreeNode::Link("./././a".to_owned()), 0);
        assert!(tree.stays_inside("m", "l", &mut LinkBudget(9)).is_err());
        assert_eq!(tree.stays_inside("m", "l", &mut LinkBudget(10)), Ok(true));
    }
}
