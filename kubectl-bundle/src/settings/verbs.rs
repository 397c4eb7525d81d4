//! Settings of the verbs that only read or pack.

use bundle_core::images::Allowed;
use bundle_core::version::ServerVersion;
use bundle_oci::manifest::Platform;

use super::{Environment, cluster, destination, registry, unusable};
use crate::args;
use crate::artifact::input::GivenMetadata;
use crate::artifact::location::ArtifactLocation;
use crate::artifact::packing;
use crate::commands::deployments::{get, status};
use crate::commands::package::{build, inspect, render, unpack};
use crate::commands::program::{complete, completion, version};
use crate::commands::webhook::check;
use crate::failure::Outcome;

/// Returns the settings of `build`.
pub(crate) fn build(args: args::Build, environment: &Environment) -> Outcome<build::Build> {
    let (output, format) = destination(args.to, args.output, args.format)?;
    for pattern in &args.allow_mutable_tags {
        if let Some(why) = bundle_core::policy::glob::problem(pattern) {
            return Err(unusable("--allow-mutable-tags", &why)
                .hint("a pattern is REGISTRY/REPOSITORY with `*` and `**`: docker.io/library/*, registry.example.com/team/**")
                .into());
        }
    }
    let platform = platform(args.platform.as_deref())?;
    let base = args
        .base
        .as_deref()
        .map(ArtifactLocation::source)
        .transpose()?;
    let resources = args.resource.iter().map(|text| packing::resource(text));
    let registry = registry::settings(args.registry, environment)?;
    Ok(build::Build {
        folder: args.folder,
        known: GivenMetadata {
            name: args.name,
            version: args.version,
        },
        base: base.map(|place| (place, platform)),
        resources: resources.collect::<Result<_, _>>()?,
        no_provenance: args.no_provenance,
        allowed: Allowed {
            patterns: args.allow_mutable_tags,
        },
        lock: args.lock,
        registry,
        output,
        tag: args.tag,
        dry_run: args.dry_run,
        format,
    })
}

/// Returns the settings of `inspect`.
pub(crate) fn inspect(args: args::Inspect, environment: &Environment) -> Outcome<inspect::Inspect> {
    let place = ArtifactLocation::source(&args.source)?;
    let settings = registry::settings(args.registry, environment)?;
    let registry = match &place {
        ArtifactLocation::Registry(reference) => settings.of(reference),
        _ => settings,
    };
    Ok(inspect::Inspect {
        place,
        objects: args.objects,
        kubernetes: args
            .kubernetes_version
            .map(|text| ServerVersion::parse(&text))
            .transpose()?,
        manifest_only: args.manifest_only,
        format: args.output.map(Into::into),
        registry,
    })
}

/// Returns the settings of `unpack`.
pub(crate) fn unpack(args: args::Unpack, environment: &Environment) -> Outcome<unpack::Unpack> {
    let (target, format) = destination(args.to, args.output, args.format)?;
    Ok(unpack::Unpack {
        source: ArtifactLocation::source(&args.source)?,
        target: target.unwrap_or_else(|| ".".into()),
        platform: platform(args.platform.as_deref())?,
        force: args.force,
        skip_unsafe: args.skip_unsafe,
        format,
        registry: registry::settings(args.registry, environment)?,
    })
}

fn platform(text: Option<&str>) -> Outcome<Option<Platform>> {
    let read = text.map(str::parse).transpose();
    Ok(read.map_err(|why: String| unusable("--platform", &why))?)
}

/// Returns the settings of `check`.
pub(crate) fn check(args: args::Check, environment: &Environment) -> Outcome<check::Check> {
    Ok(check::Check {
        files: args.filename,
        online: if args.offline {
            None
        } else {
            Some(check::OnlineSettings {
                cluster: cluster::settings(args.kube, environment)?,
                registry: registry::settings(args.registry, environment)?,
            })
        },
        system_namespace: args.system_namespace,
        format: args.output.map(Into::into),
    })
}

/// Returns the settings of `get`.
pub(crate) fn get(args: args::Get, environment: &Environment) -> Outcome<get::Get> {
    Ok(get::Get {
        names: args.names,
        watch: args.watch,
        show_managed_fields: args.show_managed_fields,
        format: args.output.map(Into::into),
        cluster: cluster::settings(args.kube, environment)?,
    })
}

/// Returns the settings of `status`.
pub(crate) fn status(args: args::Status, environment: &Environment) -> Outcome<status::Status> {
    Ok(status::Status {
        name: args.name,
        show_managed_fields: args.show_managed_fields,
        format: args.output.map(Into::into),
        cluster: cluster::settings(args.kube, environment)?,
    })
}

/// Returns the settings of `version`.
pub(crate) fn version(args: args::Version, environment: &Environment) -> Outcome<version::Version> {
    Ok(version::Version {
        cluster: if args.client {
            None
        } else {
            Some(cluster::settings(args.kube, environment)?)
        },
        system_namespace: args.system_namespace,
        format: args.output.map(Into::into),
    })
}

/// Returns the settings of `render`.
pub(crate) fn render(args: args::Render, environment: &Environment) -> Outcome<render::Render> {
    let place = ArtifactLocation::source(&args.source)?;
    let settings = registry::settings(args.registry, environment)?;
    Ok(render::Render {
        registry: match &place {
            ArtifactLocation::Registry(reference) => settings.of(reference),
            _ => settings,
        },
        place,
        name: args.name,
        namespace: args.namespace,
        format: args.output.map(Into::into),
    })
}

/// Returns the settings of `completion`.
pub(crate) fn completion(
    args: args::Completion,
    root: clap::Command,
) -> Outcome<completion::Completion> {
    let shell = args.shell.generator();
    if shell.is_some() && args.install_to.is_some() {
        return Err(unusable("--install-to", "only the script for kubectl can be installed")
            .hint("write `kubectl bundle completion kubectl --install-to DIR`, or save the output where your shell reads it")
            .into());
    }
    Ok(completion::Completion {
        root,
        shell,
        install_to: args.install_to,
    })
}

/// Returns the settings of `__complete`.
pub(crate) fn complete(
    args: args::Complete,
    environment: &Environment,
    root: clap::Command,
) -> Outcome<complete::Complete> {
    let value = |flag: &str| {
        let at = args.words.iter().position(|word| word == flag)?;
        args.words.get(at + 1).cloned()
    };
    // The cluster flags on the completed command line.
    let kube = args::Kube {
        kubeconfig: value("--kubeconfig").map(Into::into),
        context: value("--context"),
        request_timeout: "2s".to_owned(),
        act_as: value("--as"),
        ..args::Kube::default()
    };
    Ok(complete::Complete {
        root,
        cluster: cluster::settings(kube, environment)?,
        words: args.words,
    })
}
