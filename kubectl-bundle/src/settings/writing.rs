//! Settings of the verbs that change a cluster.

use bundle_api::ServiceAccountName;
use bundle_api::deployment::{Collision, DeleteCustomResources, DeleteObjects, DriftMode, Replace};

use super::{Environment, cluster, duration, registry, unusable};
use crate::args;
use crate::cluster::apply::DryRun;
use crate::cluster::wait::Wait;
use crate::commands::deployments::deploy::{self, Setting};
use crate::commands::deployments::state::prediction::Goal;
use crate::commands::deployments::write::Write;
use crate::commands::deployments::{create, delete};
use crate::failure::Outcome;

/// Returns the settings of `deploy`.
pub(crate) fn deploy(args: args::Deploy, environment: &Environment) -> Outcome<deploy::Deploy> {
    let service_account = match args.service_account.as_deref() {
        None => Setting::Keep,
        Some("") => Setting::Unset,
        Some(text) => Setting::Set(service_account(text, args.kube.namespace.as_deref())?),
    };
    let (waits, goal) = match args.wait {
        args::WaitFor::False => (false, Goal::Installed),
        args::WaitFor::True => (true, Goal::Installed),
        args::WaitFor::Healthy => (true, Goal::Healthy),
    };
    Ok(deploy::Deploy {
        name: args.name,
        content: content(args.content, &args.reference, args.registry, environment)?,
        settings: deploy::Settings {
            service_account,
            target_namespace: args.kube.namespace.clone(),
            create_namespace: args.create_namespace,
            collision: args.collision.map(|mode| match mode {
                args::Collision::Prevent => Collision::Prevent,
                args::Collision::Adopt => Collision::Adopt,
            }),
            drift: args.drift.map(|mode| match mode {
                args::Drift::Correct => DriftMode::Correct,
                args::Drift::Report => DriftMode::Report,
            }),
            paused: args.paused,
            deletion: args.deletion.map(|mode| match mode {
                args::Deletion::Delete => DeleteObjects::Delete,
                args::Deletion::Orphan => DeleteObjects::Orphan,
            }),
            custom_resources: args.custom_resources.map(|mode| match mode {
                args::CustomResources::Refuse => DeleteCustomResources::Refuse,
                args::CustomResources::Orphan => DeleteCustomResources::Orphan,
                args::CustomResources::Delete => DeleteCustomResources::Delete,
            }),
            replace: args.replace.map(|mode| match mode {
                args::Replace::Always => Replace::Always,
                args::Replace::IfCompleted => Replace::IfCompleted,
                args::Replace::Never => Replace::Never,
            }),
        },
        goal,
        write: write(&args.write, waits, args.kube, environment)?,
    })
}

/// Returns the settings of `create`.
pub(crate) fn create(args: args::Create, environment: &Environment) -> Outcome<create::Create> {
    Ok(create::Create {
        name: args.name,
        content: content(args.content, &args.reference, args.registry, environment)?,
        write: write(&args.write, args.wait, args.kube, environment)?,
    })
}

/// Returns the settings of `delete`.
pub(crate) fn delete(args: args::Delete, environment: &Environment) -> Outcome<delete::Delete> {
    Ok(delete::Delete {
        names: args.names,
        wait: wait(args.wait, &args.timeout)?,
        ignore_not_found: args.ignore_not_found,
        dry_run: dry_run(args.dry_run),
        cluster: cluster::settings(args.kube, environment)?,
    })
}

fn content(
    content: args::Content,
    reference: &str,
    registry: args::Registry,
    environment: &Environment,
) -> Outcome<deploy::Content> {
    let reference = registry::reference(reference)?;
    Ok(deploy::Content {
        class: content.class,
        pull_secret: match content.pull_secret {
            None => Setting::Keep,
            Some(name) if name.is_empty() => Setting::Unset,
            Some(name) => Setting::Set(name),
        },
        keep_tag: content.keep_tag,
        with_proof: content.with_proof,
        registry: registry::settings(registry, environment)?.of(&reference),
        reference,
    })
}

fn write(
    write: &args::Write,
    waits: bool,
    kube: args::Kube,
    environment: &Environment,
) -> Outcome<Write> {
    Ok(Write {
        dry_run: dry_run(write.dry_run),
        force: write.force_conflicts,
        wait: wait(waits, &write.timeout)?,
        format: write.output.map(Into::into),
        cluster: cluster::settings(kube, environment)?,
    })
}

pub(super) fn wait(asked: bool, timeout: &str) -> Outcome<Wait> {
    let limit = duration::limit("--timeout", timeout)?;
    Ok(match limit {
        _ if !asked => Wait::No,
        None => Wait::Forever,
        Some(limit) => Wait::AtMost(limit),
    })
}

pub(super) fn dry_run(mode: args::DryRun) -> DryRun {
    match mode {
        args::DryRun::None => DryRun::None,
        args::DryRun::Client => DryRun::Client,
        args::DryRun::Server => DryRun::Server,
    }
}

/// Parses `NAMESPACE/NAME`, or a name in the namespace of `-n`.
fn service_account(text: &str, namespace: Option<&str>) -> Outcome<ServiceAccountName> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None => (namespace.unwrap_or_default(), text),
    };
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(unusable(
            "--service-account",
            &format!("`{text}` is not a valid ServiceAccount"),
        )
        .hint("write NAMESPACE/NAME, such as team-a/deployer, or set the namespace with -n")
        .into());
    }
    Ok(ServiceAccountName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}
