//! The address that a server advertises. A wildcard address such as 0.0.0.0 is never advertised: nobody can
//! connect to it.

use std::net::{IpAddr, SocketAddr};

use braid_wire::Addresses;
use braid_wire::addresses::{BadAddresses, RAILS_MAX};
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

/// Checks the addresses of a drive's rails: each as [`check`] does, with the one that is advertised for it.
pub(crate) async fn check_rails(listen: &[String], advertise: &[String]) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::usage("listen on several addresses".to_owned(), why));
    if !advertise.is_empty() && advertise.len() != listen.len() {
        let why = format!("--listen is given {} times and --advertise {}", listen.len(), advertise.len());
        return wrong(why).map_err(|failure| {
            failure.remedy("give one --advertise for each --listen, in their order, or none")
        });
    }
    for (at, listen) in listen.iter().enumerate() {
        check(listen, advertise.get(at).map(String::as_str)).await?;
    }
    // Of port 0 each takes another; what it takes is not known yet.
    let named = |address: &&String| !address.ends_with(":0");
    let told: Vec<&String> =
        if advertise.is_empty() { listen.iter().filter(named).collect() } else { advertise.iter().collect() };
    if listen.len() > RAILS_MAX {
        return wrong(BadAddresses::TooMany(listen.len()).to_string());
    }
    match Addresses::new(&told) {
        // An address to listen on may be written as the system understands it; it is resolved.
        Ok(_) | Err(BadAddresses::None | BadAddresses::Unreadable(_)) => Ok(()),
        Err(bad) => wrong(bad.to_string()),
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
    async fn each_rail_has_its_own_address_to_advertise() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let refused = async |listen: &[&str], advertise: &[&str], why: &str| {
            let failure = check_rails(&texts(listen), &texts(advertise)).await.expect_err(why);
            assert_eq!(failure.exit, Exit::Usage, "{failure}");
            assert!(failure.to_string().contains(why), "{failure}");
        };
        refused(&["0.0.0.0:1", "[::]:2"], &["a:1"], "one --advertise for each --listen").await;
        refused(&["0.0.0.0:1", "127.0.0.1:2"], &[], "--advertise HOST:1").await;
        refused(&["0.0.0.0:1", "[::]:2"], &["a:1", "a:1"], "given twice").await;
        refused(&["127.0.0.1:1", "127.0.0.1:1"], &[], "given twice").await;
        refused(&["127.0.0.1:0"; 9], &[], "at most 8").await;
        for (listen, advertise) in
            [(vec!["127.0.0.1:0"; 8], vec![]), (vec!["0.0.0.0:1", "[::]:2"], vec!["a:1", "[fd00::1]:2"])]
        {
            check_rails(&texts(&listen), &texts(&advertise)).await.expect("a good list");
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
