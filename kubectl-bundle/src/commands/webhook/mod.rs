//! Verbs for bundle-webhook and its review of objects.

pub(crate) mod check;
pub(crate) mod install;
pub(crate) mod uninstall;
