//! Verbs of the plugin for installed content: previews, the tree of objects, adoption and release.

mod adopt;
mod preview;
mod tree;
