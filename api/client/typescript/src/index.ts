export { Client, defaultEndpoint, meta, type CallOptions, type CreateOptions, type Meta, type TailedRequest } from './client.js'
export { ApiError, ConnectionError, SignatureError, type Reason, type ShortErrorCode } from './errors.js'
export type * from './generated.js'
export { List } from './list.js'
export type { Delivery, ListenOptions } from './listen.js'
export { version, type Config } from './transport.js'
export {
  nodeWebhookHandler,
  parseEvent,
  verifySignature,
  verifyStandardSignature,
  webhookHandler,
  type Event,
  type EventHandler,
  type HeaderSource,
  type NodeRequest,
  type NodeResponse,
  type ReceiverOptions,
  type Verification,
} from './webhook.js'
