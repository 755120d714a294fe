//! Two rows of logits, mapped by a probmap server: binary tensors over a TCP socket, and nothing
//! but the standard library.
//!
//!     rustc --edition 2021 -O examples/rust/probmap.rs -o /tmp/probmap
//!     /tmp/probmap [HOST:PORT] [MAPPING]
//!
//! The body is that of the Open Inference Protocol: a JSON header that describes the tensors, then
//! their bytes, little-endian.

use std::error::Error;
use std::io::{Read, Write};
use std::mem::size_of_val;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The probabilities of `logits`, one row after the other; each row has its own temperature.
fn map(server: &str, mapping: &str, logits: &[f32], temperature: &[f32]) -> Outcome<Vec<f32>> {
    let rows = temperature.len();
    let classes = logits.len() / rows;
    let (size, row_size) = (size_of_val(logits), size_of_val(temperature));
    let header = format!(
        r#"{{"inputs": [
            {{"name": "logits", "datatype": "FP32", "shape": [{rows}, {classes}],
              "parameters": {{"binary_data_size": {size}}}}},
            {{"name": "temperature", "datatype": "FP32", "shape": [{rows}],
              "parameters": {{"binary_data_size": {row_size}}}}}],
          "outputs": [{{"name": "probabilities", "parameters": {{"binary_data": true}}}}]}}"#
    );
    let mut body = header.clone().into_bytes();
    let numbers = logits.iter().chain(temperature);
    body.extend(numbers.flat_map(|number| number.to_le_bytes()));

    let path = format!("/v2/models/{mapping}/infer");
    let tensors = post(server, &path, header.len(), &body)?;
    // One output was asked for, so that its numbers are all there is.
    if tensors.len() != size {
        return Err(format!("{size} bytes were due, but {} came", tensors.len()).into());
    }
    let fours = tensors.chunks_exact(4);
    Ok(fours
        .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
        .collect())
}

/// The tensors of the answer: what follows its JSON.
fn post(server: &str, path: &str, header_length: usize, body: &[u8]) -> Outcome<Vec<u8>> {
    let mut stream = TcpStream::connect(server)
        .map_err(|error| format!("no connection to {server}: {error}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    // HTTP/1.0: the answer comes in one piece, never in chunks, and ends the connection.
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {server}\r\nContent-Type: application/octet-stream\r\n\
         Inference-Header-Content-Length: {header_length}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    let mut head = Vec::new();
    stream.read_to_end(&mut head)?;

    let end = head.windows(4).position(|four| four == b"\r\n\r\n");
    let mut body = head.split_off(end.ok_or("what came is not HTTP")? + 4);
    let head = String::from_utf8_lossy(&head);
    let field = |name: &str| -> Option<usize> {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
        found?.1.trim().parse().ok()
    };
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(message(status, &String::from_utf8_lossy(&body)).into());
    }
    let start = field("inference-header-content-length").ok_or("the answer has no tensors")?;
    if field("content-length") != Some(body.len()) || start > body.len() {
        return Err("the answer is cut short".into());
    }
    Ok(body.split_off(start))
}

/// What is wrong and what to do about it: the text `detail` of a problem document.
fn message(status: &str, document: &str) -> String {
    // A quote inside a text has a backslash before it, so that this is found nowhere else.
    let Some((_, rest)) = document.split_once(r#""detail":""#) else {
        return format!("the server answered {status}: {document}");
    };
    let mut detail = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next().filter(|&one| one != '"') {
        let escaped = character == '\\';
        detail.extend(if escaped {
            characters.next()
        } else {
            Some(character)
        });
    }
    format!("{detail} ({status})")
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or("127.0.0.1:8000".into());
    let mapping = arguments.next().unwrap_or("sparsemax".into());
    // Minus infinity masks a class, which gets exactly 0.
    let logits = [0.0, 0.5, 1.0, 1.0, f32::NEG_INFINITY, 3.0];
    match map(&server, &mapping, &logits, &[1.0, 4.0]) {
        Ok(probabilities) => {
            for row in probabilities.chunks(3) {
                println!("{:.4} {:.4} {:.4}", row[0], row[1], row[2]);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("probmap: {error}");
            ExitCode::FAILURE
        }
    }
}
