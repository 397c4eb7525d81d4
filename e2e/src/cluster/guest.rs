//! Manners in a cluster that is somebody's: nothing of theirs is touched, and what we brought goes with us.
//! How that cluster is found is in `existing`.

use std::fmt;
use std::path::{Path, PathBuf};

/// That we are guests.
pub(super) struct Guest {
    context: String,
    kubectl: PathBuf,
}

impl Guest {
    pub(super) fn new(context: &str, kubectl: &Path) -> Self {
        Self {
            context: context.to_owned(),
            kubectl: kubectl.to_owned(),
        }
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster of context `{}`", self.context)
    }
}
