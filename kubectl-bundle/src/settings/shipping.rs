//! Settings of the verbs that copy content: copy, pull, push, save, load.

use bundle_oci::store::CopyOptions;

use super::{Environment, destination, registry, unusable};
use crate::args;
use crate::artifact::location::ArtifactLocation;
use crate::commands::transfer::{copy, load, pull, push, save};
use crate::failure::Outcome;

fn copy_options(args: &args::CopyFlags) -> Outcome<CopyOptions> {
    let platforms = args
        .platform
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|why: String| unusable("--platform", &why))
        })
        .collect::<Result<_, _>>()?;
    Ok(CopyOptions {
        without_referrers: args.no_referrers,
        platforms,
        ..CopyOptions::default()
    })
}

/// Returns the settings of `copy`.
pub(crate) fn copy(args: args::Copy, environment: &Environment) -> Outcome<copy::Copy> {
    let target = ArtifactLocation::target(&args.target)?;
    let images_to = args.images_to.as_deref().map(str::parse).transpose()?;
    if args.images && images_to.is_none() && matches!(target, ArtifactLocation::Registry(_)) {
        return Err(unusable("--images", "the target of the images is missing")
            .hint("set a registry and a prefix for them: --images-to REGISTRY/PREFIX")
            .into());
    }
    Ok(copy::Copy {
        source: ArtifactLocation::source(&args.source)?,
        target,
        selection: copy_options(&args.selection)?,
        images: args.images,
        images_to,
        overwrite_tag: args.overwrite_tag,
        format: args.output.map(Into::into),
        registry: registry::settings(args.registry, environment)?,
    })
}

/// Returns the settings of `pull`.
pub(crate) fn pull(args: args::Pull, environment: &Environment) -> Outcome<pull::Pull> {
    let reference = registry::reference(&args.reference)?;
    let (to, format) = destination(args.to, args.output, args.format)?;
    let output = if let Some(to) = &to {
        to.display().to_string()
    } else {
        let base = reference
            .repository()
            .rsplit('/')
            .next()
            .unwrap_or_default();
        let tag = reference.tag().map(str::to_owned);
        let tag = tag.or_else(|| Some(reference.digest()?.hex().chars().take(12).collect()));
        format!("./{base}-{}.oci", tag.unwrap_or_default())
    };
    let target = ArtifactLocation::target(&output)?;
    if matches!(target, ArtifactLocation::Registry(_)) {
        return Err(unusable("--to", "it is a reference in a registry")
            .hint("use `kubectl bundle copy` between registries")
            .into());
    }
    Ok(pull::Pull {
        reference,
        target,
        selection: copy_options(&args.selection)?,
        overwrite_tag: args.overwrite_tag,
        format,
        registry: registry::settings(args.registry, environment)?,
    })
}

/// Returns the settings of `push`.
pub(crate) fn push(args: args::Push, environment: &Environment) -> Outcome<push::Push> {
    let source = ArtifactLocation::source(&args.source)?;
    if matches!(source, ArtifactLocation::Registry(_)) {
        return Err(unusable(
            "LAYOUT|ARCHIVE|DIR",
            &format!("no such file or folder: {source}"),
        )
        .hint("use `kubectl bundle copy` between registries")
        .into());
    }
    let reference = registry::reference(&args.reference)?;
    Ok(push::Push {
        source,
        no_referrers: args.no_referrers,
        overwrite_tag: args.overwrite_tag,
        format: args.output.map(Into::into),
        registry: registry::settings(args.registry, environment)?.of(&reference),
        reference,
    })
}

/// Returns the settings of `save`.
pub(crate) fn save(args: args::Save, environment: &Environment) -> Outcome<save::Save> {
    let references = args.references.iter().map(|text| registry::reference(text));
    let (output, format) = destination(args.to, args.output, args.format)?;
    let Some(output) = output else {
        return Err(unusable("--to", "the target file is missing")
            .hint("set a new file: --to FILE.tar")
            .into());
    };
    Ok(save::Save {
        references: references.collect::<Result<_, _>>()?,
        output,
        selection: copy_options(&args.selection)?,
        images: args.images,
        sources_only: args.sources_only,
        format,
        registry: registry::settings(args.registry, environment)?,
    })
}

/// Returns the settings of `load`.
pub(crate) fn load(args: args::Load, environment: &Environment) -> Outcome<load::Load> {
    Ok(load::Load {
        file: args.file,
        to: args.to.parse()?,
        from: args.from.as_deref().map(str::parse).transpose()?,
        mirrors_out: args.mirrors_out,
        no_referrers: args.no_referrers,
        overwrite_tag: args.overwrite_tag,
        format: args.output.map(Into::into),
        registry: registry::settings(args.registry, environment)?,
    })
}
