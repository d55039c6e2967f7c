// Starts the viewer. It sends requests in the sandbox only.
const place = document.querySelector('#reference')
const sandbox = place.dataset.sandbox === 'true'
Scalar.createApiReference(place, {
  url: '/openapi.json',
  servers: [{ url: location.origin }],
  theme: 'default',
  withDefaultFonts: false,
  telemetry: false,
  persistAuth: false,
  hideTestRequestButton: !sandbox,
  hideClientButton: true,
  showDeveloperTools: 'never',
  agent: { disabled: true },
  mcp: { disabled: true },
  proxyUrl: '',
  authentication: { preferredSecurityScheme: 'token' },
  defaultHttpClient: { targetKey: 'shell', clientKey: 'curl' },
  // Samples in curl, Go, JavaScript and TypeScript (fetch), Python and PHP.
  hiddenClients: {
    c: true, clojure: true, csharp: true, dart: true, fsharp: true, http: true, java: true, kotlin: true,
    objc: true, ocaml: true, powershell: true, r: true, ruby: true, rust: true, swift: true,
    js: ['axios', 'jquery', 'ofetch', 'xhr'], node: ['axios', 'ofetch', 'undici'],
    python: ['aiohttp', 'httpx_async', 'httpx_sync'], shell: ['httpie', 'wget'],
  },
})
