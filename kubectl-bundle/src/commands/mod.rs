//! The verbs, one file each: they get settings and a printer, and know nothing of clap or the environment.
//! Not here: rules (bundle-core), formats and registries (bundle-oci), signatures (bundle-trust).

pub(crate) mod attest;
pub(crate) mod blob;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deploy;
mod deployment;
pub(crate) mod get;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod keys;
mod listing;
pub(crate) mod load;
pub(crate) mod outlook;
pub(crate) mod policy;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod render;
pub(crate) mod save;
pub(crate) mod sign;
pub(crate) mod status;
pub(crate) mod trust;
pub(crate) mod unpack;
pub(crate) mod verify;
pub(crate) mod version;
mod waiting;
pub(crate) mod write;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::{Failure, Outcome};
use crate::shipping::interruptible;
use crate::ui::Ui;

/// One command, ready to run.
pub(crate) enum Command {
    /// `keys generate`
    KeysGenerate(keys::generate::Generate),
    /// `keys public`
    KeysPublic(keys::public::Public),
    /// `keys import`
    KeysImport(keys::import::Import),
    /// `keys export`
    KeysExport(keys::export::Export),
    /// `build`
    Build(build::Build),
    /// `init`
    Init(init::Init),
    /// `push`
    Push(push::Push),
    /// `pull`
    Pull(pull::Pull),
    /// `copy`
    Copy(copy::Copy),
    /// `save`
    Save(save::Save),
    /// `load`
    Load(load::Load),
    /// `inspect`
    Inspect(inspect::Inspect),
    /// `unpack`
    Unpack(unpack::Unpack),
    /// `sign`
    Sign(sign::Sign),
    /// `sign FILE --bundle`
    SignFile(blob::sign::SignFile),
    /// `attest`
    Attest(attest::Attest),
    /// `verify`
    Verify(verify::Verify),
    /// `verify FILE --bundle`
    VerifyFile(blob::verify::VerifyFile),
    /// `policy test`
    PolicyTest(policy::test::PolicyTest),
    /// `trust init`
    TrustInit(trust::init::Init),
    /// `trust update`
    TrustUpdate(trust::update::Update),
    /// `trust show`
    TrustShow(trust::show::Show),
    /// `trust reset`
    TrustReset(trust::reset::Reset),
    /// `deploy`
    Deploy(deploy::Deploy),
    /// `create`
    Create(create::Create),
    /// `check`
    Check(check::Check),
    /// `get`
    Get(get::Get),
    /// `status`
    Status(status::Status),
    /// `delete`
    Delete(delete::Delete),
    /// `version`
    Version(version::Version),
    /// `render`
    Render(render::Render),
    /// `completion`
    Completion(completion::Completion),
    /// `__complete`
    Complete(complete::Complete),
}

impl Command {
    /// Runs it.
    pub(crate) fn run(self, ui: &mut Ui) -> Outcome {
        match self {
            Self::KeysGenerate(command) => command.run(ui),
            Self::KeysPublic(command) => command.run(ui),
            Self::KeysImport(command) => command.run(ui),
            Self::KeysExport(command) => command.run(ui),
            Self::Build(command) => in_runtime(command.run(ui)),
            Self::Init(command) => command.run(ui),
            Self::Push(command) => in_runtime(interruptible(command.run(ui))),
            Self::Pull(command) => in_runtime(interruptible(command.run(ui))),
            Self::Copy(command) => in_runtime(interruptible(command.run(ui))),
            Self::Save(command) => in_runtime(interruptible(command.run(ui))),
            Self::Load(command) => in_runtime(interruptible(command.run(ui))),
            Self::Inspect(command) => in_runtime(command.run(ui)),
            Self::Unpack(command) => in_runtime(command.run(ui)),
            Self::Sign(command) => in_runtime(command.run(ui)),
            Self::SignFile(command) => in_runtime(command.run(ui)),
            Self::Attest(command) => in_runtime(command.run(ui)),
            Self::Verify(command) => in_runtime(command.run(ui)),
            Self::VerifyFile(command) => in_runtime(command.run(ui)),
            Self::PolicyTest(command) => in_runtime(command.run(ui)),
            Self::TrustInit(command) => in_runtime(command.run(ui)),
            Self::TrustUpdate(command) => in_runtime(command.run(ui)),
            Self::TrustShow(command) => in_runtime(command.run(ui)),
            Self::TrustReset(command) => command.run(ui),
            Self::Deploy(command) => in_runtime(command.run(ui)),
            Self::Create(command) => in_runtime(command.run(ui)),
            Self::Check(command) => in_runtime(command.run(ui)),
            Self::Get(command) => in_runtime(command.run(ui)),
            Self::Status(command) => in_runtime(command.run(ui)),
            Self::Delete(command) => in_runtime(command.run(ui)),
            Self::Version(command) => in_runtime(command.run(ui)),
            Self::Render(command) => in_runtime(command.run(ui)),
            Self::Completion(command) => command.run(ui),
            Self::Complete(command) => in_runtime(command.run(ui)),
        }
    }
}

/// Runs what needs a network; nothing else pays for a runtime.
fn in_runtime(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::caused(
                Finding::error(
                    codes::usage::NO_RESOURCES,
                    "the system refuses what network access needs",
                ),
                &error,
            )
        })?
        .block_on(work)
}
