//! `resume`: removes `spec.paused` of BundleDeployments. `pause` has the implementation.

mod arguments;

pub(crate) use arguments::Arguments;
