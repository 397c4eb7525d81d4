//! What each verb that only reads or packs is to do.
//! Not here: verbs that change a cluster (writing).

use std::path::Path;

use bundle_core::images::Allowed;
use bundle_core::version::ServerVersion;
use bundle_oci::manifest::Platform;

use super::{Environment, cluster, registry, unusable};
use crate::args;
use crate::commands::{build, check, completion, get, init, inspect, status, unpack, version};
use crate::failure::Outcome;
use crate::input::Known;
use crate::packing;
use crate::place::Place;

pub(super) fn build(args: args::Build, environment: &Environment) -> Outcome<build::Build> {
    // `-o json` means a format in every other verb; here it would make a folder called json.
    if let Some(format) = args
        .output
        .as_ref()
        .filter(|path| [Path::new("json"), Path::new("yaml")].contains(&path.as_path()))
    {
        let format = format.display();
        return Err(unusable(
            "--output",
            &format!("`{format}` would be a folder: --output of build names the layout"),
        )
        .hint(format!(
            "to print data, use --format {format}; a folder of that name is ./{format}"
        ))
        .into());
    }
    for pattern in &args.allow_mutable_tags {
        if let Some(why) = bundle_core::policy::glob::problem(pattern) {
            return Err(unusable("--allow-mutable-tags", &why)
                .hint("a pattern is REGISTRY/REPOSITORY with `*` and `**`: docker.io/library/*, registry.example.com/team/**")
                .into());
        }
    }
    let platform = platform(args.platform.as_deref())?;
    let base = args.base.as_deref().map(Place::source).transpose()?;
    let resources = args.resource.iter().map(|text| packing::resource(text));
    let registry = registry::settings(args.registry, environment)?;
    Ok(build::Build {
        folder: args.folder,
        known: Known {
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
        output: args.output,
        tag: args.tag,
        dry_run: args.dry_run,
        format: args.format.map(Into::into),
    })
}

pub(super) fn init(args: args::Init) -> init::Init {
    init::Init {
        folder: args.folder,
        known: Known {
            name: args.name,
            version: args.version,
        },
        force: args.force,
        dry_run: args.dry_run,
    }
}

pub(super) fn inspect(args: args::Inspect, environment: &Environment) -> Outcome<inspect::Inspect> {
    let place = Place::source(&args.source)?;
    let settings = registry::settings(args.registry, environment)?;
    let registry = match &place {
        Place::Registry(reference) => settings.of(reference),
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

pub(super) fn unpack(args: args::Unpack, environment: &Environment) -> Outcome<unpack::Unpack> {
    Ok(unpack::Unpack {
        source: Place::source(&args.source)?,
        target: args.output,
        platform: platform(args.platform.as_deref())?,
        force: args.force,
        skip_unsafe: args.skip_unsafe,
        format: args.format.map(Into::into),
        registry: registry::settings(args.registry, environment)?,
    })
}

fn platform(text: Option<&str>) -> Outcome<Option<Platform>> {
    let read = text.map(str::parse).transpose();
    Ok(read.map_err(|why: String| unusable("--platform", &why))?)
}

pub(super) fn check(args: args::Check, environment: &Environment) -> Outcome<check::Check> {
    Ok(check::Check {
        files: args.filename,
        online: if args.offline {
            None
        } else {
            Some(check::Online {
                cluster: cluster::settings(args.kube, environment)?,
                registry: registry::settings(args.registry, environment)?,
            })
        },
        system_namespace: args.system_namespace,
        format: args.output.map(Into::into),
    })
}

pub(super) fn get(args: args::Get, environment: &Environment) -> Outcome<get::Get> {
    Ok(get::Get {
        names: args.names,
        format: args.output.map(Into::into),
        cluster: cluster::settings(args.kube, environment)?,
    })
}

pub(super) fn status(args: args::Status, environment: &Environment) -> Outcome<status::Status> {
    Ok(status::Status {
        name: args.name,
        format: args.output.map(Into::into),
        cluster: cluster::settings(args.kube, environment)?,
    })
}

pub(super) fn version(args: args::Version, environment: &Environment) -> Outcome<version::Version> {
    Ok(version::Version {
        cluster: if args.client {
            None
        } else {
            Some(cluster::settings(args.kube, environment)?)
        },
        format: args.output.map(Into::into),
    })
}

pub(super) fn completion(args: &args::Completion) -> completion::Completion {
    completion::Completion {
        shell: args.shell.into(),
    }
}
