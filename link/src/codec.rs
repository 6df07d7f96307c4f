//! Messages as JSON in gRPC frames.

use std::marker::PhantomData;

use bytes::{Buf as _, BufMut as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

pub(crate) struct JsonCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for JsonCodec<T, U> {
    fn default() -> Self {
        JsonCodec(PhantomData)
    }
}

impl<T: Serialize + Send + 'static, U: DeserializeOwned + Send + 'static> Codec for JsonCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = JsonEncoder<T>;
    type Decoder = JsonDecoder<U>;

    fn encoder(&mut self) -> JsonEncoder<T> {
        JsonEncoder(PhantomData)
    }

    fn decoder(&mut self) -> JsonDecoder<U> {
        JsonDecoder(PhantomData)
    }
}

pub(crate) struct JsonEncoder<T>(PhantomData<T>);

impl<T: Serialize> Encoder for JsonEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        serde_json::to_writer(buffer.writer(), &item)
            .map_err(|error| Status::internal(format!("cannot encode a message: {error}")))
    }
}

pub(crate) struct JsonDecoder<U>(PhantomData<U>);

impl<U: DeserializeOwned> Decoder for JsonDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Status::invalid_argument(format!("cannot read a message: {error}")))
    }
}
