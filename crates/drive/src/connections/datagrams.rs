//! Peers that open a connection by datagrams: they show the public part of a capability for this drive, and
//! prove by its private part that they hold it. The drive derives that, as it does for a request, and refuses
//! a handshake for whatever it would refuse every request under this capability for. Each request of the
//! session is judged by itself all the same.

use std::sync::{Arc, Weak};

use braid_transport::{SecretOf, capability_secret};
use braid_wire::authorise::private_parts;
use braid_wire::capability::Binding;
use braid_wire::{Capability, Refusal, Wire};
use tracing::debug;

use crate::core::Core;

/// Finds the secret of an opener's identity, for as long as the drive is there.
pub(crate) fn secret_of(core: &Arc<Core>) -> SecretOf {
    let core: Weak<Core> = Arc::downgrade(core);
    Arc::new(move |identity| {
        let capability = Capability::from_bytes(identity).ok()?;
        let core = core.upgrade()?;
        let parts = match private_parts_of(&core, &capability) {
            Ok(parts) => parts,
            Err(refusal) => {
                debug!(reason = ?refusal.reason, %refusal, "a handshake was refused");
                return None;
            }
        };
        let mut secrets = parts.iter().map(capability_secret);
        let secret = secrets.next()?;
        Some(secrets.fold(secret, |secret, former| secret.or(&former)))
    })
}

fn private_parts_of(core: &Core, capability: &Capability) -> Result<Vec<braid_wire::Key>, Refusal> {
    let now_ms = core.arrival().now_ms;
    // A handshake ties no request to a connection.
    let parts = core.with_scene(Binding([0; 16]), now_ms, |scene| private_parts(scene, capability))?;
    // Without a lease nothing is served, and what was revoked is not known yet.
    if now_ms.is_some() {
        core.revoked().check_any(capability)?;
    }
    Ok(parts)
}
