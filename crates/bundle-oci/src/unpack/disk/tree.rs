//! The paths of the folder that is being written. All decisions use this tree in memory. The disk
//! is never used for decisions.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::super::UnpackError;
use super::super::entry::refused;

/// Maximum number of links that are followed to check one link. `STEPS` is the maximum number of
/// path components.
const MAX_LINKS: usize = 40;
const STEPS: usize = 4096;

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

/// Paths of all layers that were unpacked so far. Each path has the number of its layer.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<String, PlacedNode>,
    emptied: EmptiedPaths,
    /// Number of nodes that [`Tree::remove`] has visited.
    #[cfg(test)]
    visits: usize,
}

/// Paths of folders for which the current layer has a whiteout and also its own entries. A further
/// whiteout of this layer for the same path has no effect.
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
        for (end, _) in path.match_indices('/') {
            let folder = &path[..end];
            match self.get(folder) {
                Some(TreeNode::Folder) => {}
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
        Ok(missing)
    }

    /// Frees `path` for an entry of this layer. Returns the entries to remove from disk, deepest
    /// first. Returns an error if this layer already has an entry at `path`.
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

    /// Removes the entries of lower layers at and below `path`, or only below `path`. A folder is
    /// kept if this layer has an entry in the folder. The entries below a path are visited only
    /// once for each layer, because an image can repeat a whiteout any number of times.
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

    /// Returns `true` if the link at `path` stays inside the folder, also through other links. For
    /// a target that does not exist, only its path is checked.
    pub(super) fn stays_inside(&self, path: &str, target: &str) -> bool {
        let mut at: Vec<&str> = path.split('/').collect();
        at.pop();
        if target.starts_with('/') {
            at.clear();
        }
        let mut left: VecDeque<&str> = target.split('/').collect();
        let (mut hops, mut steps) = (0, 0);
        while let Some(component) = left.pop_front() {
            steps += 1;
            if steps > STEPS {
                return false;
            }
            match component {
                "" | "." => continue,
                ".." => {
                    // `..` is resolved only in folders of the tree. On a case-insensitive disk, a
                    // name that is not in the tree may refer to a link.
                    if at.is_empty() || self.get(&at.join("/")) != Some(&TreeNode::Folder) {
                        return false;
                    }
                    at.pop();
                    continue;
                }
                name => at.push(name),
            }
            if let Some(TreeNode::Link(further)) = self.get(&at.join("/")) {
                hops += 1;
                if hops > MAX_LINKS {
                    return false;
                }
                at.pop();
                if further.starts_with('/') {
                    at.clear();
                }
                for component in further.split('/').rev() {
                    left.push_front(component);
                }
            }
        }
        true
    }
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
        // The entries of this layer are entries of a lower layer for the next layer.
        assert_eq!(tree.remove("a", false, 2).len(), ENTRIES + 1);
        assert_eq!(tree.get("a"), None);
    }
}
