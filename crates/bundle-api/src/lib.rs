//! Custom resources of `core.rukpak.io/v1alpha1`: types, field docs, constants and condition names.
//! They contain no rules.

pub mod admission_status;
pub mod approval;
pub mod bundle;
pub mod class;
pub mod crds;
pub mod deployment;
pub mod deployment_status;
pub mod names;
pub mod policy;
pub mod service_account;
pub mod source;

pub use approval::{BundleApproval, BundleApprovalSpec};
pub use bundle::{Bundle, BundleSpec, BundleStatus};
pub use class::{ProvisionerClass, ProvisionerClassSpec};
pub use deployment::{BundleDeployment, BundleDeploymentSpec, BundleTemplate};
pub use deployment_status::BundleDeploymentStatus;
pub use policy::{SignaturePolicy, SignaturePolicySpec};
pub use service_account::ServiceAccountName;
