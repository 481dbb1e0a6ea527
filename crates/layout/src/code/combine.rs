//! Sums of products over slices of different lengths. Bytes that are missing at the end of a slice count as
//! zeros.

use super::kernel::{Kernel, Start};
use super::matrix::Coefficients;

/// A slice and its factor for each output.
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) coefficients: Coefficients,
}

/// Sets each output to the sum of the products, or adds the sum to it: output `i` gets `coefficients[i] *
/// bytes` of each input, each input zero-extended or cut to the output's length. At most four outputs.
///
/// The slices' ends divide the bytes into stretches. In each, the kernel gets the slices that reach its end.
pub(super) fn combine(kernel: Kernel, inputs: &[Input<'_>], outputs: &mut [&mut [u8]], start: Start) {
    let mut from = 0;
    while let Some(to) = next_end(inputs, outputs, from) {
        let reach: Vec<&Input<'_>> = inputs.iter().filter(|input| input.bytes.len() >= to).collect();
        let sources: Vec<&[u8]> = reach.iter().map(|input| &input.bytes[from..to]).collect();
        let (indices, stretch): (Vec<usize>, Vec<&mut [u8]>) = outputs
            .iter_mut()
            .enumerate()
            .filter(|(_, output)| output.len() >= to)
            .map(|(index, output)| (index, &mut output[from..to]))
            .unzip();
        match indices.len() {
            0 => return,
            1 => sum::<1>(kernel, &reach, &sources, &indices, stretch, start),
            2 => sum::<2>(kernel, &reach, &sources, &indices, stretch, start),
            3 => sum::<3>(kernel, &reach, &sources, &indices, stretch, start),
            4 => sum::<4>(kernel, &reach, &sources, &indices, stretch, start),
            more => unreachable!("{more} outputs, but a stripe has at most 4 parity units"),
        }
        from = to;
    }
}

/// The nearest end of a slice after `from`.
fn next_end(inputs: &[Input<'_>], outputs: &[&mut [u8]], from: usize) -> Option<usize> {
    let inputs = inputs.iter().map(|input| input.bytes.len());
    inputs.chain(outputs.iter().map(|output| output.len())).filter(|&end| end > from).min()
}

fn sum<const M: usize>(
    kernel: Kernel,
    reach: &[&Input<'_>],
    sources: &[&[u8]],
    indices: &[usize],
    outputs: Vec<&mut [u8]>,
    start: Start,
) {
    let coefficients: Vec<[u8; M]> =
        reach.iter().map(|input| std::array::from_fn(|i| input.coefficients[indices[i]])).collect();
    let mut outputs: [&mut [u8]; M] = outputs.try_into().expect("as many outputs as counted");
    kernel.sum(&coefficients, sources, &mut outputs, start);
}
