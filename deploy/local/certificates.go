package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates holds the certificate of a private authority, and the certificates that the
// authority has issued: one for servers on 127.0.0.1, and one for their clients. All are valid for
// a day.
type Certificates struct {
	// CAFile, ClientCertFile and ClientKeyFile are the paths of a client's PEM files: the
	// authority's certificate, the client's certificate (for the user svc) and the client's key.
	CAFile, ClientCertFile, ClientKeyFile string

	ca, serverCert, serverKey string // PEM, for the servers
}

// NewCertificates creates an authority and its certificates, and writes the client's files into the
// existing folder dir.
func NewCertificates(dir string) (*Certificates, error) {
	ca, err := issue(nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "private authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return nil, err
	}
	server, err := issue(ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.ParseIP(host)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // also for replicas
	})
	if err != nil {
		return nil, err
	}
	client, err := issue(ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: postgresUser}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	c := &Certificates{
		CAFile: filepath.Join(dir, "ca.pem"), ClientCertFile: filepath.Join(dir, "client.pem"),
		ClientKeyFile: filepath.Join(dir, "client.key"), ca: ca.cert, serverCert: server.cert, serverKey: server.key,
	}
	return c, errors.Join(os.WriteFile(c.CAFile, []byte(ca.cert), 0o600),
		os.WriteFile(c.ClientCertFile, []byte(client.cert), 0o600),
		os.WriteFile(c.ClientKeyFile, []byte(client.key), 0o600))
}

// Client returns the TLS settings of a client. It reads the client's certificate and key from their
// files.
func (c *Certificates) Client() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.ClientCertFile, c.ClientKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.ca))
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// serverFiles are the paths of a server's PEM files.
type serverFiles struct{ ca, cert, key string }

// write writes a server's PEM files into its data folder dir.
func (c *Certificates) write(acc account, dir string) (serverFiles, error) {
	f := serverFiles{filepath.Join(dir, "tls-ca.pem"), filepath.Join(dir, "tls.pem"), filepath.Join(dir, "tls.key")}
	return f, errors.Join(acc.writeFile(f.ca, c.ca), acc.writeFile(f.cert, c.serverCert),
		acc.writeFile(f.key, c.serverKey))
}

// issued is a certificate with its key, parsed and in PEM.
type issued struct {
	parsed    *x509.Certificate
	private   *ecdsa.PrivateKey
	cert, key string // PEM
}

// issue creates a key, and a certificate for it that the authority signs. If authority is nil, the
// certificate is self-signed.
func issue(authority *issued, template *x509.Certificate) (*issued, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(24*time.Hour)
	template.SerialNumber = big.NewInt(now.UnixNano())
	parent, signer := template, private
	if authority != nil {
		parent, signer = authority.parsed, authority.private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	if err != nil {
		return nil, err
	}
	i := &issued{private: private, cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	if i.parsed, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	i.key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}))
	return i, nil
}
