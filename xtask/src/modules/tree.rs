//! The modules of one crate, and the resolution of paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::reader::{self, Declarations};

/// Maximum number of nested re-exports.
const REEXPORTS: usize = 16;

/// A module.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Name of the module. The root has an empty name.
    pub(super) name: String,
    /// Source file of the module.
    pub(super) file: PathBuf,
    /// Index of the parent module in [`Tree::modules`]; `None` for the root.
    pub(super) parent: Option<usize>,
    /// Indexes of the child modules in [`Tree::modules`], by name.
    pub(super) children: BTreeMap<String, usize>,
    /// Paths in the code of the module.
    pub(super) paths: Vec<Vec<String>>,
    bindings: BTreeMap<String, Vec<String>>,
}

/// The modules of one crate. The first module is the root.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// All modules.
    pub(super) modules: Vec<Module>,
}

impl Tree {
    /// Reads a crate from its root file and all declared files.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        tree.file(root, &folder, String::new(), None)?;
        Ok(tree)
    }

    /// Returns a crate with this text as its root, for tests.
    #[cfg(test)]
    pub(super) fn inline(source: &str) -> Self {
        let mut tree = Self::default();
        let declarations = reader::read(source).unwrap();
        tree.add(
            declarations,
            Path::new("lib.rs"),
            Path::new(""),
            String::new(),
            None,
        )
        .unwrap();
        tree
    }

    fn file(
        &mut self,
        file: &Path,
        folder: &Path,
        name: String,
        parent: Option<usize>,
    ) -> Result<usize> {
        let source = fs_err::read_to_string(file)?;
        let declarations =
            reader::read(&source).with_context(|| format!("cannot read {}", file.display()))?;
        self.add(declarations, file, folder, name, parent)
    }

    fn add(
        &mut self,
        declarations: Declarations,
        file: &Path,
        folder: &Path,
        name: String,
        parent: Option<usize>,
    ) -> Result<usize> {
        let id = self.modules.len();
        self.modules.push(Module {
            name,
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            paths: declarations.paths,
            bindings: declarations.bindings.into_iter().collect(),
        });
        for child in declarations.files {
            let below = folder.join(&child);
            let candidates = [below.with_extension("rs"), below.join("mod.rs")];
            let Some(found) = candidates.iter().find(|path| path.exists()) else {
                bail!(
                    "{} declares `mod {child}`, but its file does not exist",
                    file.display()
                );
            };
            let added = self.file(found, &below, child.clone(), Some(id))?;
            self.modules[id].children.insert(child, added);
        }
        for (child, inner) in declarations.inline {
            let added = self.add(inner, file, &folder.join(&child), child.clone(), Some(id))?;
            self.modules[id].children.insert(child, added);
        }
        Ok(id)
    }

    /// Returns the module to which a path in `from` resolves, through re-exports; `None` for
    /// another crate.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Option<usize> {
        self.follow(from, path, REEXPORTS)
    }

    fn follow(&self, from: usize, path: &[String], left: usize) -> Option<usize> {
        let left = left.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.modules[from].parent?,
            name => {
                let module = &self.modules[from];
                if let Some(&child) = module.children.get(name) {
                    child
                } else {
                    let bound = module.bindings.get(name).filter(|bound| *bound != path)?;
                    return self.follow(from, &[bound, rest].concat(), left);
                }
            }
        };
        while let Some((name, remaining)) = rest.split_first() {
            let module = &self.modules[at];
            if name == "super" {
                at = module.parent?;
            } else if let Some(&child) = module.children.get(name) {
                at = child;
            } else if let Some(bound) = module.bindings.get(name)
                && let Some(found) = self.follow(at, &[bound, remaining].concat(), left)
            {
                return Some(found);
            } else {
                break;
            }
            rest = remaining;
        }
        Some(at)
    }

    /// Returns the path of a module in its crate, such as `reconcile::drift`. The root has an empty
    /// path.
    pub(super) fn path(&self, id: usize) -> String {
        let mut names: Vec<&str> = self
            .lineage(id)
            .map(|id| self.modules[id].name.as_str())
            .filter(|name| !name.is_empty())
            .collect();
        names.reverse();
        names.join("::")
    }

    /// Returns a module and its parents. The root is last.
    pub(super) fn lineage(&self, id: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(id), |&id| self.modules[id].parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(source: &str, from: &str, path: &str) -> Option<String> {
        let tree = Tree::inline(source);
        let from = (0..tree.modules.len())
            .find(|&id| tree.path(id) == from)
            .unwrap();
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        tree.resolve(from, &path).map(|id| tree.path(id))
    }

    #[test]
    fn path_leads_to_the_innermost_module() {
        let source = "mod a { mod b { } } mod c { }";
        assert_eq!(target(source, "c", "crate::a::b::T"), Some("a::b".into()));
        assert_eq!(
            target(source, "a::b", "super::super::c::T"),
            Some("c".into())
        );
        assert_eq!(target(source, "a", "b::T"), Some("a::b".into()));
        assert_eq!(target(source, "a", "serde::T"), None);
    }

    #[test]
    fn path_is_followed_through_reexports() {
        let source = "mod a { mod b { } pub use b::T; pub use serde::U; } mod c { }";
        assert_eq!(target(source, "c", "crate::a::T"), Some("a::b".into()));
        assert_eq!(target(source, "c", "crate::a::U"), Some("a".into()));
    }

    #[test]
    fn reexports_of_themselves_end() {
        let source = "mod a { pub use super::b::T; } mod b { pub use super::a::T; }";
        assert!(target(source, "a", "crate::b::T").is_some());
    }
}
