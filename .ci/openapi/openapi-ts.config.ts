import { defineConfig } from '@hey-api/openapi-ts'

export default defineConfig({
  output: { path: 'hey-api/generated', module: { extension: '.js' } },
  plugins: ['@hey-api/client-fetch', '@hey-api/typescript', '@hey-api/sdk'],
})
