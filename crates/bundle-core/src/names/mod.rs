//! Names of Kubernetes objects, parsed: the only form in which a name that somebody wrote reaches a URL or a selector.
//! Length limits of our own kinds are in `bundle_api::names`.

mod kube_name;
mod rules;

pub use kube_name::{KubeName, NameError, NameKind};
pub use rules::{is_dns_label, is_dns_subdomain};
