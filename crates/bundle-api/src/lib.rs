//! Custom resources of `core.rukpak.io/v1alpha1`: types, descriptions of fields, constants and
//! condition names. This crate contains no rules. The Cargo feature `resources` adds the types of
//! whole objects for the Kubernetes client, and the CRDs.

pub mod admission_status;
pub mod approval;
pub mod bundle;
pub mod class;
#[cfg(feature = "resources")]
pub mod crds;
pub mod deployment;
pub mod names;
pub mod policy;
mod schemas;
pub mod service_account;
pub mod source;

pub use approval::BundleApprovalSpec;
pub use bundle::{BundleSpec, BundleStatus};
pub use class::ProvisionerClassSpec;
pub use deployment::status::BundleDeploymentStatus;
pub use deployment::{BundleDeploymentSpec, BundleTemplate};
pub use policy::SignaturePolicySpec;
pub use service_account::ServiceAccountName;
#[cfg(feature = "resources")]
pub use {
    approval::BundleApproval, bundle::Bundle, class::ProvisionerClass,
    deployment::BundleDeployment, policy::SignaturePolicy,
};
