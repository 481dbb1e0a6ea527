//! The address that a server advertises. A wildcard address such as 0.0.0.0 is never advertised: nobody can
//! connect to it.

use std::net::{IpAddr, SocketAddr};

use tokio::net::lookup_host;

use crate::output::exit::Failure;

/// Refuses an address that peers could not connect to: a wildcard to listen on without `--advertise`, or an
/// `--advertise` that is not usable.
pub(crate) async fn check(listen: &str, advertise: Option<&str>) -> Result<(), Failure> {
    if let Some(advertise) = advertise {
        return check_told(advertise);
    }
    // Resolved, since other spellings mean a wildcard too ("0:7400"). An address that cannot be resolved is
    // reported later, when the server tries to listen on it.
    let mut addresses = lookup_host(listen).await.into_iter().flatten();
    match addresses.find(|address| is_any(address.ip())) {
        None => Ok(()),
        Some(any) => Err(Failure::usage(
            format!("listen on {listen}"),
            format!("{} stands for all addresses of this machine, and nobody can connect to that", any.ip()),
        )
        .remedy(format!(
            "say with --advertise HOST:{} what others are to connect to",
            port_shown(any.port())
        ))),
    }
}

/// Checks for `HOST:PORT` with both parts. The host may be one that only the peers can resolve.
fn check_told(advertise: &str) -> Result<(), Failure> {
    let wrong = |why: &str| {
        Err(Failure::usage(format!("advertise {advertise:?}"), why)
            .remedy("write the HOST:PORT that others connect to, such as host-a:7400"))
    };
    let port = match advertise.parse::<SocketAddr>() {
        Ok(address) if is_any(address.ip()) => return wrong("nobody can connect to that address"),
        Ok(address) => Some(address.port()),
        Err(_) => match advertise.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !host.contains([':', '/', ' ']) => port.parse().ok(),
            _ => None,
        },
    };
    match port {
        Some(0) => wrong("nobody can connect to port 0"),
        Some(_) => Ok(()),
        None => wrong("it is not HOST:PORT"),
    }
}

fn is_any(ip: IpAddr) -> bool {
    ip.to_canonical().is_unspecified()
}

fn port_shown(port: u16) -> String {
    if port == 0 { "PORT".to_owned() } else { port.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::exit::Exit;

    #[tokio::test]
    async fn an_address_that_nobody_can_connect_to_is_not_told() {
        for listen in ["0.0.0.0:7400", "[::]:7400", "0.0.0.0:0", "[::ffff:0.0.0.0]:1"] {
            let failure = check(listen, None).await.expect_err(listen);
            assert_eq!(failure.exit, Exit::Usage, "{failure}");
            assert!(failure.to_string().contains("--advertise HOST:"), "{failure}");
            check(listen, Some("host-a:7400")).await.expect("told what to say");
        }
        for advertise in
            ["0.0.0.0:7400", "[::]:7400", "host-a", "host-a:", ":7400", "host-a:0", "::1", "h:70000"]
        {
            let failure = check("127.0.0.1:7400", Some(advertise)).await.expect_err(advertise);
            assert_eq!(failure.exit, Exit::Usage, "{failure}");
        }
    }

    #[tokio::test]
    async fn all_others_are_taken() {
        for listen in ["127.0.0.1:7400", "[::1]:0", "127.0.0.1:0", "no-such-host.invalid:1", "nonsense"] {
            check(listen, None).await.expect(listen);
        }
        for advertise in ["host-a:7400", "10.1.2.3:1", "[fe80::1]:7400"] {
            check("0.0.0.0:7400", Some(advertise)).await.expect(advertise);
        }
    }
}
