//! Questions about a file's records, answered where the data lies.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;

use braid_client::{Answer, Argument, Arguments, RunAsk, RunAt};

use crate::calls::answer;
use crate::client::Client;
use crate::errors::Failure;
use crate::memory::{Text, Texts, put};
use crate::names::parse;

/// A method runs where it takes less time.
pub const BRAID_AT_CHEAPEST: c_int = 0;
/// A method runs at the drives; fails if none may run it.
pub const BRAID_AT_DRIVES: c_int = 1;
/// A method runs here: the file is read.
pub const BRAID_AT_CLIENT: c_int = 2;

/// The answer of a method.
#[derive(Debug)]
pub struct Answered {
    text: CString,
    /// The rows of a table; `None`: the answer is no table.
    rows: Option<Vec<u8>>,
}

/// Runs a method on a file: docs/methods.md has the methods. `arguments` are texts NAME=VALUE, with NULL
/// behind the last; or NULL. `at` is one of BRAID_AT_... It takes as long as it takes to read the file. The
/// answer is freed by braid_answer_free.
#[unsafe(no_mangle)]
pub extern "C" fn braid_run(
    client: Option<&Client>,
    method: Text,
    name: Text,
    arguments: Texts,
    at: c_int,
) -> Option<Box<Answered>> {
    answer(None, || {
        let shared = Client::of(client)?;
        let method = method.text("the method")?.ok_or_else(|| Failure::null("the method"))?;
        let name = parse(&name)?;
        let arguments = arguments.all()?.into_iter().map(argument).collect::<Result<_, _>>()?;
        let at = match at {
            BRAID_AT_CHEAPEST => RunAt::Cheapest,
            BRAID_AT_DRIVES => RunAt::Drives,
            BRAID_AT_CLIENT => RunAt::Client,
            other => return Err(Failure::invalid(format!("{other} is no place for a method to run"))),
        };
        let ask = RunAsk::new(method, Arguments(arguments)).at(at);
        let ran = shared.wait(shared.client().run(&name, &ask))?;
        let text = serde_json::to_string(&ran.document(method));
        let text = text.map_err(|error| Failure::new(libc::EIO, format!("the answer: {error}")))?;
        let text = CString::new(text).map_err(|_| Failure::new(libc::EIO, "the answer has a NUL in it"))?;
        let rows = match ran.answer {
            Answer::Rows(rows) | Answer::Arrow(rows) | Answer::Bytes(rows) => Some(rows),
            _ => None,
        };
        Ok(Some(Box::new(Answered { text, rows })))
    })
}

fn argument(text: &str) -> Result<Argument, Failure> {
    match text.split_once('=') {
        Some((name, value)) => Ok(Argument { name: name.to_owned(), value: value.to_owned() }),
        None => Err(Failure::invalid(format!("{text:?} is no argument: give NAME=VALUE"))),
    }
}

/// The answer as a JSON document, the one of `braid run --json`. It stays until the answer is freed.
#[unsafe(no_mangle)]
pub extern "C" fn braid_answer_text(answered: Option<&Answered>) -> *const c_char {
    answer(std::ptr::null(), || Ok(answered.ok_or_else(|| Failure::null("the answer"))?.text.as_ptr()))
}

/// The rows of an answer that is a table, as they are, and their length in bytes. They stay until the answer
/// is freed. Fails if the answer is no table.
#[unsafe(no_mangle)]
pub extern "C" fn braid_answer_rows(
    answered: Option<&Answered>,
    length: Option<&mut MaybeUninit<usize>>,
) -> *const c_void {
    answer(std::ptr::null(), || {
        let rows = answered.ok_or_else(|| Failure::null("the answer"))?.rows.as_ref();
        let rows = rows.ok_or_else(|| Failure::invalid("the answer is no table: it has a text only"))?;
        put(length, "the length", rows.len())?;
        Ok(rows.as_ptr().cast())
    })
}

/// Frees an answer, which is not used again; NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn braid_answer_free(answered: Option<Box<Answered>>) {
    drop(answered);
}
