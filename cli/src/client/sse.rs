//! Server-sent events, from bytes. It knows no network.

/// Cuts a stream of bytes into messages.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    unread: Vec<u8>,
    event: String,
    data: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// `message` where the stream names none.
    pub event: String,
    pub data: String,
}

impl Decoder {
    /// The messages that are complete with these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Message> {
        self.unread.extend_from_slice(bytes);
        let mut messages = Vec::new();
        let mut start = 0;
        while let Some(length) = self.unread[start..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.unread[start..start + length]).into_owned();
            start += length + 1;
            messages.extend(self.line(line.strip_suffix('\r').unwrap_or(&line)));
        }
        self.unread.drain(..start);
        messages
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let event = if event.is_empty() { "message".to_owned() } else { event };
            return self.data.take().map(|data| Message { event, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // The id is in the data; a comment keeps the connection alive.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_the_bytes_arrive() {
        let stream = ": hello\n\nid: 7\nevent: event\ndata: {\"a\":\ndata:  \"ä\"}\n\nid: 8\r\ndata: x\r\n\r\ndata: cut";
        let expected = vec![
            Message { event: "event".to_owned(), data: "{\"a\":\n \"ä\"}".to_owned() },
            Message { event: "message".to_owned(), data: "x".to_owned() },
        ];
        for size in 1..stream.len() {
            let mut decoder = Decoder::default();
            let found: Vec<Message> =
                stream.as_bytes().chunks(size).flat_map(|chunk| decoder.push(chunk)).collect();
            assert_eq!(found, expected, "in chunks of {size}");
        }
    }
}
