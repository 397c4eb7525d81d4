//! Content of bundles: build-time checks, formats, and the rules of other projects.

mod checks;
pub(super) mod formats;
mod suites;
pub(super) mod unchecked;
