# A QUIC server at port 443 of an address of the loopback interface and its client, in one process: some megabytes.
import asyncio, datetime, os, ssl, sys, tempfile
from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST, PORT, SIZE = "127.91.0.1", 443, int(os.environ.get("QUIC_BYTES", 16_000_000))


def certificate(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lastmeter")])
    now = datetime.datetime.now(datetime.timezone.utc)
    one = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    one = one.serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
    one = one.not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    with open(folder + "/key", "wb") as file:
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    with open(folder + "/certificate", "wb") as file:
        file.write(one.public_bytes(pem))


async def main(folder):
    certificate(folder)
    server = QuicConfiguration(is_client=False, alpn_protocols=["test"])
    server.load_cert_chain(folder + "/certificate", folder + "/key")

    def reply(reader, writer):
        async def run():
            await reader.read()
            writer.write(bytes(SIZE))
            writer.write_eof()

        asyncio.ensure_future(run())

    await serve(HOST, PORT, configuration=server, stream_handler=reply)
    client = QuicConfiguration(is_client=True, alpn_protocols=["test"], verify_mode=ssl.CERT_NONE)
    async with connect(HOST, PORT, configuration=client) as connection:
        reader, writer = await connection.create_stream()
        writer.write_eof()
        got = 0
        while data := await reader.read(65536):
            got += len(data)
    print(got, "bytes")
    sys.exit(0 if got == SIZE else 1)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
