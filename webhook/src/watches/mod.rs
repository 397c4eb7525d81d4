//! The watches that keep the shelves filled: ProvisionerClasses and SignaturePolicies.
//! Not here: what they mean (bundle-core), or the watches of the reconciler.

mod policies;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bundle_api::names::{GROUP, VERSION};
use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, DeserializeGuard, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::readiness::Gate;
use crate::shared::Shared;
use crate::shelf::Shelf;
