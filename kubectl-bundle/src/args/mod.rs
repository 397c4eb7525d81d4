//! Types of clap for the command line, one file per verb. The doc comments are the help texts.

mod attest;
mod build;
mod check;
mod completion;
mod delete;
mod deploy;
mod get;
mod global;
mod inspect;
mod keys;
mod output;
mod push;
mod render;
mod shipping;
mod sign;
mod trust;
mod unpack;
mod verify;
mod version;

pub(crate) use attest::Attest;
pub(crate) use build::Build;
pub(crate) use check::Check;
pub(crate) use completion::{Complete, Completion};
pub(crate) use delete::Delete;
pub(crate) use deploy::{
    Collision, Content, Create, CustomResources, Deletion, Deploy, Drift, Replace, WaitFor, Write,
};
pub(crate) use get::{Get, Status};
pub(crate) use global::{Color, DryRun, Global, Kube, Registry};
pub(crate) use inspect::Inspect;
pub(crate) use keys::{Export, Generate, Import, KeyType, Keys, KeysVerb, PublicKey};
pub(crate) use output::{Data, FormatOrPath, Object, Wide};
pub(crate) use push::Push;
pub(crate) use render::Render;
pub(crate) use shipping::{Copy, CopyFlags, Load, Pull, Save};
pub(crate) use sign::{AuthFlow, Keyless, Sign, SignatureForm, SignerFlags};
pub(crate) use trust::{Trust, TrustInit, TrustShow, TrustUpdate, TrustVerb, TufFlags};
pub(crate) use unpack::Unpack;
pub(crate) use verify::{Policy, PolicyTest, PolicyVerb, TrustRoot, Verify};
pub(crate) use version::Version;
