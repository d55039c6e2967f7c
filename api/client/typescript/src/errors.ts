import type { components } from './generated.js'

type ErrorCode = components['schemas']['ErrorCode']

type WithoutPrefix<C> = C extends `urn:svc:platform:billing:error:${infer Short}` ? Short : never

/** A code of the error catalogue without its common prefix, such as `batches:batch-not-found`. */
export type ShortErrorCode = WithoutPrefix<ErrorCode> | (string & {})

/** A reason for a refusal. */
export interface Reason {
  /** The code, such as `urn:svc:platform:billing:error:batches:batch-not-found`. Answers under /checkout have none. */
  code?: ErrorCode
  message: string
  /** The faulty field, parameter or header. */
  target?: string
}

/** An error answer of the API, of any shape. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  /** The HTTP status. */
  readonly status: number
  /** Every reason that the answer gives. It is empty if something in between answered. */
  readonly reasons: readonly Reason[]
  /** Identifies the request for support. */
  readonly traceId: string | undefined
  /** The wait that the answer asks for, in milliseconds. */
  readonly retryAfterMs: number | undefined
  /** The address of the cause and the cure of the code. */
  readonly help: string | undefined

  constructor(status: number, headers: Headers, body: unknown) {
    const { reasons, traceId } = parse(body)
    const texts = reasons.map((r) => [r.target, r.message].filter(Boolean).join(': '))
    super([`${status}`, ...texts].join('; ') + (traceId ? ` (trace ${traceId})` : ''))
    this.status = status
    this.reasons = reasons
    this.traceId = traceId
    const seconds = Number(headers.get('Retry-After') ?? NaN)
    this.retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined
    this.help = /<([^>]*)>; *rel="help"/.exec(headers.get('Link') ?? '')?.[1]
  }

  /** Reports whether a reason has the code, given with or without the common prefix. */
  has(code: ShortErrorCode): boolean {
    return this.reasons.some((r) => r.code === code || r.code?.endsWith(`:error:${code}`))
  }
}

/** A request that got no answer, or one that ended early. It may have taken effect. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError'
}

/** A webhook that the service did not sign, that was changed on its way, or that is too old. */
export class SignatureError extends Error {
  override readonly name = 'SignatureError'
}

function parse(body: unknown): { reasons: Reason[]; traceId: string | undefined } {
  const { errors, traceId, error, error_description } = (body ?? {}) as Record<string, unknown>
  const reasons: Reason[] = []
  for (const e of Array.isArray(errors) ? errors : []) {
    const { code, displayMessage, message, target } = (e ?? {}) as Record<string, unknown>
    const reason: Reason = { message: String(displayMessage ?? message ?? '') }
    if (typeof code === 'string') reason.code = code
    if (typeof target === 'string') reason.target = target
    reasons.push(reason)
  }
  if (typeof error === 'string') {
    reasons.push({ code: error, message: String(error_description ?? error) }) // the token endpoint (RFC 6749)
  }
  return { reasons, traceId: typeof traceId === 'string' ? traceId : undefined }
}
