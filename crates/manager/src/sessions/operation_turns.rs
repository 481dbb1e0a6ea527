//! Turns of operations: one copy of each is carried out at a time. `operations` has the rules.

use std::sync::Arc;

use braid_meta::records::schema::{OperationRecord, key, table};
use braid_meta::rules::operations::{KEPT_MS, Operation, check_head, is_final};
use braid_wire::Refusal;
use braid_wire::checksum::crc32c;
use braid_wire::control::{ControlReply, ControlRequest, RequestHead};

use crate::core::Core;

/// Number of rows that the background reads in one transaction.
const ROWS_PER_ROUND: usize = 4096;

/// An operation in progress: no other copy of it runs.
pub struct Turn {
    core: Arc<Core>,
    /// Identity of the operation.
    pub operation: Operation,
}

/// Begins an operation, as its request's head says. Refused if the head contradicts itself or is too old.
pub fn begin(core: &Arc<Core>, head: &RequestHead, request: &ControlRequest) -> Result<Turn, Refusal> {
    let now_ms = core.now_ms();
    check_head(head, request, now_ms)?;
    let mut body = request.kind().to_le_bytes().to_vec();
    request.put_body(&mut body);
    let &RequestHead { client, operation: number, settled_below, .. } = head;
    core.operations().begin(client, number, settled_below, head.begun_ms, now_ms)?;
    let operation = Operation { client, number, settled_below, request: crc32c(&body) };
    Ok(Turn { core: Arc::clone(core), operation })
}

impl Turn {
    /// Ends the turn with this answer. A final refusal is repeated to any later copy of the operation, as the
    /// client was told that nothing changed.
    pub fn end(self, answer: &Result<ControlReply, Refusal>) {
        if let Err(refusal) = answer
            && is_final(refusal.reason)
        {
            self.core.operations().refused(&self.operation, refusal.clone());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.core.operations().end(&self.operation);
    }
}

/// Deletes results whose clients left without settling them. Called by the background.
pub async fn forget_old(core: &Arc<Core>) -> Result<(), Refusal> {
    let now_ms = core.now_ms();
    core.operations().forget(now_ms);
    let (mut from, to) = key::all(table::OPERATION);
    loop {
        let range = (from.clone(), to.clone());
        let rows = core.read(move |_, tx| Ok(tx.records::<OperationRecord>(&range, ROWS_PER_ROUND)?)).await?;
        let full = rows.len() == ROWS_PER_ROUND;
        if let Some((last, _)) = rows.last() {
            from = [last.as_slice(), &[0]].concat();
        }
        let old = |record: &OperationRecord| now_ms.saturating_sub(record.done_ms) >= KEPT_MS;
        let old: Vec<Vec<u8>> =
            rows.into_iter().filter(|(_, record)| old(record)).map(|(row, _)| row).collect();
        if !old.is_empty() {
            core.write(move |_, tx| {
                old.into_iter().for_each(|row| tx.delete(row));
                Ok(())
            })
            .await?;
        }
        if !full {
            return Ok(());
        }
    }
}
