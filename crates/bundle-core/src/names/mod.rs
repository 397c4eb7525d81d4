//! Validated names of Kubernetes objects. Only validated names are used in URLs and selectors.
//! Length limits of the kinds of this project are in `bundle_api::names`.

mod kube_name;
mod rules;

pub use kube_name::{KubeName, NameError, NameKind};
pub use rules::{is_dns_label, is_dns_subdomain};
