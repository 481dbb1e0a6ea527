//! `braid token`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::output::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it once
    #[command(
        after_help = "A client's token is for all volumes, or for those that are named, and changes nothing if it is read-only. With --below it is confined to these directories: it names nothing else, and `braid mount braid://VOLUME/PATH` mounts one of them. With --uid the manager checks the permissions of this user for each request, and what is made is the user's, whoever the client says that it is; without it, clients say which user they act for. A drive's token is for one drive: after it has joined, the drive proves a key of its own. An admin's token allows all. Only the holder and the manager know the secret; it cannot be printed again.\n\nWith --out the file holds all that its user needs: for a client or an admin a cluster.toml, to be named with --cluster; for a drive the token, to be named with --token-file.\n\nExamples:\n  \
        braid token new laptop --volumes main,media --read-only --expires 30d --out laptop.toml\n  \
        braid token new film --below braid://main/projects/film --uid 1000 --gid 1000,27 --out film.toml\n  \
        braid token new disk-7 --role drive --out disk-7.token\n  \
        braid token new alice --role admin"
    )]
    New(TokenNew),
    /// List the tokens, without their secrets
    #[command(after_help = "Example:\n  braid token ls --json")]
    Ls,
    /// End a token now, with all that is open with it
    #[command(
        after_help = "Its sessions, leases and locks end, and drives refuse what they allowed before. Drives that have joined with it stay. The last admin's token that does not expire cannot be revoked.\n\nExample:\n  braid token revoke laptop"
    )]
    Revoke {
        /// The token's name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenNew {
    /// The token's name, for people
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The kind of rights
    #[arg(long, value_enum, default_value = "client")]
    pub(crate) role: Role,
    /// The volumes for which a client's token is [default: all]
    #[arg(long, value_name = "VOLUME,...", value_delimiter = ',')]
    pub(crate) volumes: Vec<String>,
    /// Directories to which a client's token is confined, with all below them [default: none]
    #[arg(long, value_name = "braid://VOLUME/PATH,...", value_delimiter = ',')]
    pub(crate) below: Vec<OsString>,
    /// The number of the user to whom a client's token is bound
    #[arg(long, value_name = "UID")]
    pub(crate) uid: Option<u32>,
    /// The numbers of that user's groups; what is new gets the first [default: UID]
    #[arg(long, value_name = "GID,...", value_delimiter = ',', requires = "uid")]
    pub(crate) gid: Vec<u32>,
    /// A client's token that changes nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Time after which the token ends [default: never]
    #[arg(long, value_parser = lasts, value_name = "TIME")]
    pub(crate) expires: Option<u64>,
    /// A new file for the token, which only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// The roles of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// All requests, in all volumes
    Admin,
    /// Names, files and rates
    Client,
    /// To join as a drive, once
    Drive,
    /// To join as a manager, once
    Manager,
}

/// Seconds of a time such as `30d`.
fn lasts(text: &str) -> Result<u64, String> {
    match duration::parse(text)? / 1000 {
        0 => Err(format!("\"{text}\" is too short: a token lasts a second at least")),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_whole_seconds() {
        assert_eq!(lasts("30d"), Ok(30 * 86_400));
        assert_eq!(lasts("1500ms"), Ok(1));
        for text in ["5ms", "soon", "", "0s", "-1d", "1.5h"] {
            assert!(lasts(text).is_err(), "{text}");
        }
    }
}
