//! `braid-lab bench bound`: what plain processes do with sockets and files on this machine, and its
//! processors with bytes in memory.

use braid_bench::against::kernels::{Kernel, measure};
use braid_bench::against::{Question, Unit};
use braid_bench::touch_memory;
use braid_cli::output::exit::Failure;
use braid_cli::output::report::Report;

use super::plain::Plain;
use super::ratios::{self, Bench, Run};
use super::run::Which;
use crate::args::BenchCluster;
use crate::demo::peer::Order;

const BENCH: Bench =
    Bench { name: "bound", title: "Fair bounds of this machine", needed: (3 << 30, 256 << 20) };
/// As many processes as a stripe of 4+1 has drives.
const WIDTH: usize = 5;
/// Bytes of a sample.
const BYTES: (u64, u64) = (1 << 30, 16 << 20);
/// Bytes of a sample in memory.
const MEMORY_BYTES: (usize, usize) = (512 << 20, 4 << 20);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    ratios::run(BENCH, asked, report, async |run| rows(run).await).await
}

async fn rows(run: &mut Run) -> Result<(), Failure> {
    let reads = Question::rates("sockets", "5 senders to one process", ["by sendfile", "by a copy"]);
    let writes = Question::rates("sockets", "one process to 5 receivers", ["to files", "dropped"]);
    if run.wants_any([&reads, &writes]) {
        let bytes = run.size(BYTES.0, BYTES.1);
        let mut plain = Plain::start(run.path(), WIDTH)?;
        let orders = [(reads, Order::GiveSendfile, Order::GiveCopied), (writes, Order::Take, Order::Drop)];
        for (question, first, second) in orders {
            run.pairs(&question, async |which| {
                let order = if which == Which::First { first } else { second };
                if order == Order::Take {
                    touch_memory(bytes);
                }
                plain.run(order, bytes)
            })
            .await?;
        }
    }
    let bytes = run.size(MEMORY_BYTES.0, MEMORY_BYTES.1);
    for kernel in Kernel::ALL {
        for (cold, name) in [(true, "cold"), (false, "hot")] {
            let name = format!("{}, {name}", kernel.name());
            let question = Question::value("memory", name, Unit::BytesPerSecond, "one thread");
            run.alone(&question, async || Ok(tokio::task::block_in_place(|| measure(kernel, bytes, cold))))
                .await?;
        }
    }
    Ok(())
}
