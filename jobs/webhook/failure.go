package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"partnerbilling/models"
)

// describe tells the partner why an attempt to deliver a webhook failed. The text reveals nothing
// of the service: no name server, no local address, no message of a library. timeout is the
// time-out of the attempt.
func describe(err error, timeout time.Duration) string {
	var dns *net.DNSError
	var netErr net.Error
	switch {
	case errors.Is(err, models.ErrWebhookAddress):
		return "the name leads to an address that is not allowed"
	case errors.Is(err, errTarget):
		return "the URL is not allowed"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &netErr) && netErr.Timeout():
		return "no answer within " + timeout.String()
	case errors.As(err, &dns):
		return "the name cannot be resolved"
	case errors.Is(err, context.Canceled):
		return "interrupted on our side"
	}
	if text := describeTLS(err); text != "" {
		return text
	}
	return describeConnection(err)
}

// describeTLS returns "" if err is not about TLS.
func describeTLS(err error) string {
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &authority):
		return "the certificate is not signed by an authority that we trust"
	case errors.As(err, &hostname):
		return "the certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &verification):
		return "the certificate is not valid"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the port does not speak TLS"
	case errors.As(err, &alert), strings.Contains(err.Error(), "tls: "):
		return "the TLS handshake failed"
	default:
		return ""
	}
}

func describeConnection(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the address cannot be reached"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "server closed"):
		return "the connection was closed without an answer"
	case strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), "malformed MIME"),
		strings.Contains(err.Error(), "headers exceeded"), strings.Contains(err.Error(), "PROTOCOL_ERROR"):
		return "the answer is not valid HTTP"
	default:
		return "the exchange failed"
	}
}
