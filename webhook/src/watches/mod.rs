//! The watches that fill the caches of ProvisionerClasses and SignaturePolicies.

mod config_maps;
mod follow;
mod policies;
mod ready_conditions;

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_core::review::class::Class;
use tokio_util::sync::CancellationToken;

use self::follow::Follower;
pub(crate) use self::policies::policies;
pub(crate) use self::ready_conditions::write_all as write_ready_conditions;
use crate::readiness::Gate;
use crate::shared::Shared;

/// Updates the cache of ProvisionerClasses until `shutdown`.
pub(crate) async fn classes(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut follower = Follower::new(shared.client(), "ProvisionerClass", "provisionerclasses");
    loop {
        let specs = tokio::select! {
            () = shutdown.cancelled() => return,
            specs = follower.next() => specs,
        };
        let classes: BTreeMap<_, _> = specs
            .into_iter()
            .map(|(name, spec)| {
                let class = Class::parse(&name, &spec);
                (name, Arc::new(class))
            })
            .collect();
        let unreadable = classes.values().filter(|class| class.is_err()).count();
        shared.metrics.unreadable("ProvisionerClass", unreadable);
        shared.classes.replace(classes);
        shared.classes.set_synced();
        shared.readiness.open(Gate::Classes);
    }
}
