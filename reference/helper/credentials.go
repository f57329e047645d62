// Who may speak with whom? Makes the certificate authority, the servers' and etcd's client certificates, the key that signs
// service account tokens, and the administrator's token.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// lifetime is short: a reference control plane is for a test run, and its credentials are of no use after it.
const lifetime = 30 * 24 * time.Hour

// credentials writes into dir: ca.crt, apiserver.{crt,key}, etcd.{crt,key}, etcd-client.{crt,key}, service-account.{key,pub}, and
// tokens.csv. The authority's own key is not kept: nothing else is ever to be signed by it.
func credentials(dir string) error {
	authority, err := newAuthority()
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	if err := writePEM(dir, "ca.crt", "CERTIFICATE", authority.certificate.Raw); err != nil {
		return err
	}
	// etcd's peer listener is a server and a client of itself, so its certificate serves both ends.
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for name, usage := range map[string][]x509.ExtKeyUsage{"apiserver": both[:1], "etcd": both, "etcd-client": both[1:]} {
		if err := authority.issue(dir, name, usage); err != nil {
			return fmt.Errorf("certificate of %s: %w", name, err)
		}
	}
	if err := serviceAccountKey(dir); err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	token := make([]byte, 16)
	if _, err := rand.Read(token); err != nil {
		return err
	}
	line := hex.EncodeToString(token) + ",admin,admin,system:masters\n"
	return write(dir, "tokens.csv", []byte(line))
}

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template("watchkeeper reference authority")
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate, key}, err
}

// issue writes name.crt and name.key, valid for the loopback interface and the names that pods would use.
func (a *authority) issue(dir, name string, usage []x509.ExtKeyUsage) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := template(name)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = usage
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	if err := writePEM(dir, name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(dir, name+".key", key)
}

func template(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
	}, nil
}

func serviceAccountKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(dir, "service-account.pub", "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(dir, "service-account.key", key)
}

// kubeconfig writes dir/kubeconfig for the API server at the port. It holds all it needs, so that it can be copied.
func kubeconfig(dir, port string) error {
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return err
	}
	tokens, err := os.ReadFile(filepath.Join(dir, "tokens.csv"))
	if err != nil {
		return err
	}
	token, _, _ := strings.Cut(string(tokens), ",")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: reference
  cluster:
    server: https://127.0.0.1:%s
    certificate-authority-data: %s
users:
- name: admin
  user:
    token: %s
contexts:
- name: reference
  context:
    cluster: reference
    user: admin
current-context: reference
`, port, base64.StdEncoding.EncodeToString(ca), token)
	return write(dir, "kubeconfig", []byte(text))
}

func writeKey(dir, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(dir, name, "EC PRIVATE KEY", der)
}

func writePEM(dir, name, kind string, der []byte) error {
	return write(dir, name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// write replaces the file, so that an older one's wider permissions are not kept.
func write(dir, name string, content []byte) error {
	temporary := filepath.Join(dir, "."+name+".new")
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, name))
}
