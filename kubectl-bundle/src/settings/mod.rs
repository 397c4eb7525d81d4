//! From what was typed to what is meant: environment, defaults and checks across flags, in one place.
//! Not here: clap's types (args) and the work (commands).

mod cluster;
mod duration;
mod environment;
mod identity;
mod printing;
mod registry;
mod shipping;
mod signing;
mod trust;
mod verbs;
mod writing;

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};

use crate::args::{Data, FormatOrPath, Keys, KeysVerb, Policy, PolicyVerb, Trust, TrustVerb, Verb};
use crate::commands::Command;
use crate::failure::Outcome;
use crate::ui::format::Format;

pub(crate) use environment::Environment;
pub(crate) use printing::style;

/// The command to run.
pub(crate) fn command(verb: Verb, environment: &Environment) -> Outcome<Command> {
    Ok(match verb {
        Verb::Build(args) => Command::Build(verbs::build(args, environment)?),
        Verb::Init(args) => Command::Init(verbs::init(args)),
        Verb::Push(args) => Command::Push(shipping::push(args, environment)?),
        Verb::Pull(args) => Command::Pull(shipping::pull(args, environment)?),
        Verb::Copy(args) => Command::Copy(shipping::copy(args, environment)?),
        Verb::Save(args) => Command::Save(shipping::save(args, environment)?),
        Verb::Load(args) => Command::Load(shipping::load(args, environment)?),
        Verb::Inspect(args) => Command::Inspect(verbs::inspect(args, environment)?),
        Verb::Unpack(args) => Command::Unpack(verbs::unpack(args, environment)?),
        Verb::Keys(Keys {
            verb: KeysVerb::Generate(args),
        }) => Command::KeysGenerate(signing::generate(args, environment)),
        Verb::Keys(Keys {
            verb: KeysVerb::Public(args),
        }) => Command::KeysPublic(signing::public(args, environment)?),
        Verb::Keys(Keys {
            verb: KeysVerb::Import(args),
        }) => Command::KeysImport(signing::import(args, environment)?),
        Verb::Keys(Keys {
            verb: KeysVerb::Export(args),
        }) => Command::KeysExport(signing::export(args, environment)?),
        Verb::Sign(args) => signing::sign(args, environment)?,
        Verb::Attest(args) => signing::attest(args, environment)?,
        Verb::Verify(args) => trust::verify(args, environment)?,
        Verb::Policy(Policy {
            verb: PolicyVerb::Test(args),
        }) => Command::PolicyTest(trust::policy_test(args, environment)?),
        Verb::Trust(Trust { verb }) => match verb {
            TrustVerb::Init(args) => Command::TrustInit(trust::init(args, environment)),
            TrustVerb::Update(args) => Command::TrustUpdate(trust::update(args, environment)),
            TrustVerb::Show(args) => Command::TrustShow(trust::show(args, environment)),
            TrustVerb::Reset => Command::TrustReset(trust::reset(environment)),
        },
        Verb::Deploy(args) => Command::Deploy(writing::deploy(args, environment)?),
        Verb::Create(args) => Command::Create(writing::create(args, environment)?),
        Verb::Check(args) => Command::Check(verbs::check(args, environment)?),
        Verb::Get(args) => Command::Get(verbs::get(args, environment)?),
        Verb::Status(args) => Command::Status(verbs::status(args, environment)?),
        Verb::Delete(args) => Command::Delete(writing::delete(args, environment)?),
        Verb::Version(args) => Command::Version(verbs::version(args, environment)?),
        Verb::Render(args) => Command::Render(verbs::render(args, environment)?),
        Verb::Completion(args) => Command::Completion(verbs::completion(args)?),
        Verb::Complete(args) => Command::Complete(verbs::complete(args, environment)?),
    })
}

/// The path of `--to` and the format of `-o`, of verbs that write to a path.
fn destination(
    to: Option<PathBuf>,
    output: Option<FormatOrPath>,
    format: Option<Data>,
) -> Outcome<(Option<PathBuf>, Option<Format>)> {
    let format = format.map(Into::into);
    match output {
        None => Ok((to, format)),
        Some(FormatOrPath::Format(data)) => Ok((to, Some(data.into()))),
        Some(FormatOrPath::Path(path)) => {
            let told = format!("`{}` is not a format: json or yaml", path.display());
            Err(not_a_path(&told, &path).into())
        }
    }
}

/// The error where a path is given after `-o`, which is kubectl's flag for a format.
fn not_a_path(message: &str, path: &Path) -> Finding {
    unusable("--output", message).hint(format!(
        "the flag for a path is --to: --to {}",
        path.display()
    ))
}

/// A flag whose value cannot be used.
fn unusable(flag: &str, message: &str) -> Finding {
    Finding::error(codes::usage::BAD_ARGUMENT, message).at_field(flag)
}
