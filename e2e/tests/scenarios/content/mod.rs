//! Content of bundles: build-time checks, formats, downloads, and the rules of other projects.

mod checks;
mod downloads;
pub(super) mod formats;
mod suites;
pub(super) mod unchecked;
mod uploads;
mod verbs;
