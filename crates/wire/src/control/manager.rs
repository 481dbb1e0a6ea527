//! Managers of a cluster whose state is in an etcd that Braid runs: one that joins, one that is lost.

use crate::capability::Key;

record! {
    /// Adds the asking host to the managers. First its etcd only follows the others; the manager that leads
    /// gives it a vote when it has caught up. A repeat by the same host, with the same token, is answered
    /// alike.
    pub struct AddManager {
        /// Address of the manager, `host:port`, by which others know it; also the name of its member of etcd.
        address: String,
        /// Address of its etcd for the other members, `host:port`.
        peer: String,
    }
}

record! {
    /// The answer to [`AddManager`].
    pub struct ManagerAdded {
        /// The secret key of the cluster's CA. The state, which the host holds from now on, has it too.
        authority: Key,
        /// The certificate of the CA, in DER: its hash is that of the token.
        certificate: Vec<u8>,
        /// The members of etcd, the new one too.
        members: Vec<EtcdPeer>,
    }
}

record! {
    /// A member of the managers' etcd, as another one needs it.
    pub struct EtcdPeer {
        /// Name of the member: the address of its manager.
        name: String,
        /// Address for other members, `host:port`.
        peer: String,
        /// Address for managers, `host:port`; empty: it has not started yet.
        client: String,
    }
}

record! {
    /// Takes a manager that is lost out of the cluster, for ever. Refused with
    /// [`NotAllowed`](crate::Reason::NotAllowed) if it still answers, or if those that are left and answer
    /// would be no majority.
    pub struct RemoveManager {
        /// Address of the manager, or the host part of it if no other manager has that.
        address: String,
    }
}
